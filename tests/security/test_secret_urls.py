"""A URL's password is never shown, however it is given and whatever is wrong."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import orjson
import psycopg
import pytest
from psycopg import conninfo

from faultline import Faultline
from faultline.api import ApiSettings
from faultline.cli.context import Context
from faultline.cli.database_url_option import conceal_passwords, without_url
from faultline.embedded import ServerStatus
from faultline.inspector.inspector_settings import InspectorSettings
from faultline.postgres.reconnecting import ReconnectingSession
from faultline.reconciler import Reconciler
from faultline.statements import keys
from faultline.statements.keys import Scope
from tests.cli.conftest import invoke
from tests.security.services import APP
from tests.unit.test_wording import CANARY


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{CANARY}@127.0.0.1:1/db",
        f"postgresql://u:{CANARY}@h@127.0.0.1:1/db",
        f"postgresql://u:a/{CANARY}@127.0.0.1:1/db",
        f"postgresql://u:{CANARY}@127.0.0.1:port/db",
        f"postgresql://u:%zz{CANARY}@127.0.0.1:1/db",
        f"postgres//u:{CANARY}@127.0.0.1:1/db",
        f"host=127.0.0.1 port=1 user=u password={CANARY} surplus",
        f"host=127.0.0.1 port=1 user=u password='{CANARY}",
        f"{CANARY}",
    ],
)
@pytest.mark.parametrize(
    "words", [("jobs", "list"), ("doctor",), ("migrate",), ("enqueue", "task")], ids=" ".join
)
def test_the_url_of_an_unreachable_server_is_not_quoted(url: str, words: tuple[str, ...]) -> None:
    done = invoke(url, *words)

    assert done.code == 1
    assert CANARY not in f"{done.out} {done.error} {done.error!r}"


@pytest.mark.parametrize(
    "words",
    [("--app", APP, "worker"), ("reconciler",), ("api", "--port", "0"), ("inspector", "serve")],
    ids=lambda words: words[-1],
)
def test_a_service_does_not_quote_the_url_that_it_cannot_read(words: tuple[str, ...]) -> None:
    app = words[1] if words[0] == "--app" else None
    done = invoke(f"postgresql://u:{CANARY}@h@h/db", *words[2 if app else 0 :], app=app)

    assert done.error is not None
    assert "not a database URL" in done.error.message
    assert CANARY not in f"{done.out} {done.error} {done.error!r}"


async def _things(url: str) -> list[object]:
    return [
        Context(app_path=None, given_url=url, log_format="json", verbose=False),
        InspectorSettings(database_url=url),
        ServerStatus(True, 1, url, "18", Path()),
        ApiSettings(),
        Faultline(url),
        Reconciler(url),
        ReconnectingSession(url, purpose="test"),
    ]


async def _shown(url: str) -> str:
    return " ".join(map(repr, await _things(url)))


def test_objects_with_a_url_do_not_show_it(with_password: str) -> None:
    canary = str(conninfo.conninfo_to_dict(with_password)["password"])
    assert canary not in asyncio.run(_shown(with_password))
    with psycopg.connect(with_password) as conn:
        assert canary not in repr(conn)
    made = keys.new_key()
    stored = keys.StoredKey(1, "name", made.key_hash, frozenset(Scope))
    secret = made.text.rpartition("_")[2]
    assert secret not in repr(made)
    assert made.key_hash.hex() not in repr(stored)
    assert str(made.key_hash) not in repr(stored)


def test_a_child_is_started_without_the_url() -> None:
    url = f"postgresql://u:{CANARY}@h/db"
    rest = ["--app", "a:b", "worker", "--queues", "x"]

    assert without_url(["--database-url", url, *rest]) == rest
    assert without_url([*rest[:2], f"--database-url={url}", *rest[2:]]) == rest


@pytest.mark.parametrize("form", ["--database-url {}", "--database-url={}"])
def test_a_password_that_cannot_be_hidden_causes_a_warning_without_it(
    capsys: pytest.CaptureFixture[str], form: str
) -> None:
    """This process's own command line does not have it, so there is nothing to hide."""
    conceal_passwords(form.format(f"postgresql://u:{CANARY}@h/db").split())
    conceal_passwords(form.format("postgresql://u@h/db").split())
    conceal_passwords(["worker", f"postgresql://u:{CANARY}@h/db"])

    warned = capsys.readouterr().err
    assert warned.count("DATABASE_URL_FILE") == 1
    assert CANARY not in warned


def test_a_file_of_the_environment_names_the_database(
    with_password: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    (tmp_path / "url").write_text(f"  {with_password}\n\n")
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "url"))

    app = Faultline()
    try:
        assert app.queues() == []
    finally:
        app.close()


@pytest.mark.parametrize("way", ["passfile", "PGPASSFILE", "service"])
def test_libpqs_own_ways_to_keep_a_password_work(
    with_password: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    part = {name: str(value) for name, value in conninfo.conninfo_to_dict(with_password).items()}
    password = part.pop("password")
    passfile = tmp_path / "pgpass"
    passfile.write_text(f"{part['host']}:{part['port']}:*:{part['user']}:{password}\n")
    passfile.chmod(0o600)
    url = conninfo.make_conninfo("", **part)
    if way == "passfile":
        url += f" passfile={passfile}"
    elif way == "PGPASSFILE":
        monkeypatch.setenv("PGPASSFILE", str(passfile))
    else:
        services = tmp_path / "services"
        lines = "\n".join(
            f"{name}={value}" for name, value in (*part.items(), ("password", password))
        )
        services.write_text(f"[queue]\n{lines}\n")
        monkeypatch.setenv("PGSERVICEFILE", str(services))
        url = "service=queue"

    assert orjson.loads(invoke(url, "queues", "--json").out) == []


def test_no_password_of_ours_is_in_our_own_environment() -> None:
    """Otherwise the tests above would prove nothing."""
    assert not any(CANARY in value for value in os.environ.values())
