"""`faultline epoch` and `doctor` show the epoch, and a restore stops claims."""

from __future__ import annotations

import pytest

from .conftest import Connection, Faultline, claim, enqueue


@pytest.fixture
def restored(conn: Connection) -> None:
    """The database as a dump brings it to another server."""
    conn.execute(
        "UPDATE faultline.epochs SET system_identifier = 42, server_started_at = '2020-01-01'"
    )


def _epoch_of_doctor(faultline: Faultline) -> str:
    checks = faultline("doctor", "--json").json["checks"]
    [level] = [check["level"] for check in checks if check["name"] == "epoch"]
    return str(level)


def test_show_lists_the_epoch_of_the_installation(faultline: Faultline) -> None:
    heading, epoch, origin = faultline("epoch", "show").out.splitlines()
    assert heading.split()[:3] == ["epoch", "began", "cause"]
    assert epoch.split()[0] == "0"
    assert "install" in epoch
    assert origin == "this is the server on which the epoch began"
    assert faultline("epoch", "show", "--json").json["status"]["is_refused"] is False


def test_bump_begins_the_next_epoch_and_stores_the_reason(faultline: Faultline) -> None:
    done = faultline("epoch", "bump", "--reason", "moved house")
    [newest, first] = faultline("epoch", "show", "--json").json["history"]
    assert done.out == f"epoch {newest['epoch']} has begun\n"
    assert newest["cause"] == "by hand: moved house"
    assert first["epoch"] == 0


@pytest.mark.usefixtures("restored")
def test_a_restored_database_is_reported_and_refused_claims_name_the_remedy(
    faultline: Faultline, conn: Connection
) -> None:
    assert "restored here from another" in faultline("epoch", "show").out
    assert _epoch_of_doctor(faultline) == "problem"
    enqueue(conn)
    with pytest.raises(Exception, match="faultline epoch bump") as error:
        claim(conn)
    assert getattr(error.value, "code", None) == "server_changed"


@pytest.mark.usefixtures("restored")
def test_a_restored_database_continues_only_after_a_confirmed_bump(
    faultline: Faultline, conn: Connection
) -> None:
    asked = faultline("epoch", "bump")
    assert asked.code != 0
    assert faultline("epoch", "show", "--json").json["status"]["is_refused"] is True
    assert faultline("epoch", "bump", "--yes").code == 0
    enqueue(conn)
    assert claim(conn).fencing_token > 2**22
    assert _epoch_of_doctor(faultline) == "ok"


def test_show_announces_the_next_epoch_after_a_promotion_without_claims(
    faultline: Faultline, conn: Connection
) -> None:
    conn.execute("UPDATE faultline.epochs SET timeline = 7")
    assert "the next claim begins a new epoch" in faultline("epoch", "show").out
