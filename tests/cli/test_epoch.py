"""Claims about `faultline epoch`, and what `doctor` says of the epoch."""

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


def test_it_shows_the_epoch_of_the_install(faultline: Faultline) -> None:
    heading, epoch, said = faultline("epoch", "show").out.splitlines()
    assert heading.split()[:3] == ["epoch", "began", "cause"]
    assert epoch.split()[0] == "0"
    assert "install" in epoch
    assert said == "this is the server on which the epoch began"
    assert faultline("epoch", "show", "--json").json["status"]["is_refused"] is False


def test_a_bump_begins_the_next_one_and_keeps_the_reason(faultline: Faultline) -> None:
    done = faultline("epoch", "bump", "--reason", "moved house")
    [newest, first] = faultline("epoch", "show", "--json").json["history"]
    assert done.out == f"epoch {newest['epoch']} has begun\n"
    assert newest["cause"] == "by hand: moved house"
    assert first["epoch"] == 0


@pytest.mark.usefixtures("restored")
def test_a_restored_database_is_called_that_and_claims_say_what_to_do(
    faultline: Faultline, conn: Connection
) -> None:
    assert "restored here from another" in faultline("epoch", "show").out
    assert _epoch_of_doctor(faultline) == "problem"
    enqueue(conn)
    with pytest.raises(Exception, match="faultline epoch bump") as error:
        claim(conn)
    assert getattr(error.value, "code", None) == "server_changed"


@pytest.mark.usefixtures("restored")
def test_a_restored_database_goes_on_only_when_somebody_says_so(
    faultline: Faultline, conn: Connection
) -> None:
    asked = faultline("epoch", "bump")
    assert asked.code != 0
    assert faultline("epoch", "show", "--json").json["status"]["is_refused"] is True
    assert faultline("epoch", "bump", "--yes").code == 0
    enqueue(conn)
    assert claim(conn).fencing_token > 2**22
    assert _epoch_of_doctor(faultline) == "ok"


def test_a_promotion_that_nobody_has_claimed_on_yet_is_announced(
    faultline: Faultline, conn: Connection
) -> None:
    conn.execute("UPDATE faultline.epochs SET timeline = 7")
    assert "the next claim begins a new epoch" in faultline("epoch", "show").out
