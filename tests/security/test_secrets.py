"""A password, and a key of the API, are nowhere to be read: not in what processes say or show, not in the
process list, however they fail."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import orjson
import psycopg
import pytest
from psycopg import conninfo

from faultline import Faultline, keys
from faultline.api import ApiSettings
from faultline.cli.command_line import conceal_passwords, without_url
from faultline.cli.context import Context
from faultline.embedded import ServerStatus
from faultline.inspector.settings import InspectorSettings
from faultline.keys import Scope
from faultline.link import Link
from faultline.migrate import migrate
from faultline.reconciler import Reconciler
from faultline.scrubbing import without_passwords
from tests.api.served import make_key
from tests.cli.conftest import invoke
from tests.metrics.scraping import free_port
from tests.security.accounts import account
from tests.security.services import APP, Service, services, wait_until
from tests.tracing.collector import collecting

CANARY = "c4n4ry-Sw0rdf1sh"
EVERY_ROLE = (
    *("faultline_producer", "faultline_worker", "faultline_inspector", "faultline_operator"),
)


@pytest.fixture
def with_password(database_url: str) -> Iterator[str]:
    """A URL in the usual form, with the canary in it."""
    migrate(database_url, roles=True)
    with account(database_url, *EVERY_ROLE, password=CANARY) as made:
        part = conninfo.conninfo_to_dict(made)
        yield f"postgresql://{part['user']}:{CANARY}@{part['host']}:{part['port']}/{part['dbname']}"


def test_no_process_shows_its_password_whatever_happens(
    database_url: str, with_password: str, tmp_path: Path
) -> None:
    """Given by command line, environment and file; working, failing, and without its database."""
    key = make_key(database_url)
    secret_file = tmp_path / "url"
    secret_file.write_text(f"\n  {with_password}\n")
    metrics = free_port()
    heard: list[str] = []
    with ExitStack() as stack:
        collector = stack.enter_context(collecting())
        client = stack.enter_context(
            httpx2.Client(headers={"Authorization": f"Bearer {key}"}, timeout=30)
        )
        traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}

        start_one = stack.enter_context(services())

        def start(*words: str, **variables: str) -> Service:
            return start_one("--verbose", *words, **variables, **traced)

        options = ("--processes", "2", "--metrics-port", str(metrics))
        worker = start("--database-url", with_password, "--app", APP, "worker", *options)
        api = start("api", "--port", "0", DATABASE_URL=with_password)
        inspector = start("inspector", "serve", "--port", "0", DATABASE_URL_FILE=str(secret_file))
        reconciler = start(f"--database-url={with_password}", "reconciler")
        everyone = (worker, api, inspector, reconciler)

        sent = client.post(f"{api.address()}/jobs", json={"task": "shop.quote", "max_attempts": 1})
        job = sent.json()["job_id"]
        pages = [
            *(
                f"{api.address()}/{path}"
                for path in (f"jobs/{job}", "queues", "metrics", "nowhere")
            ),
            *(f"{api.address()}/{path}" for path in ("openapi.json", "jobs?limit=nonsense")),
            *(f"{inspector.address()}/{path}" for path in ("api/about", f"api/jobs/{job}", "x")),
            *(f"{inspector.address()}/api/{path}" for path in ("overview", "jobs", "workers")),
            f"http://127.0.0.1:{metrics}/metrics",
        ]
        wait_until(lambda: "***" in client.get(pages[0]).text, *everyone)  # the handler's error
        worker.wait_for_word("job_dead")
        wait_until(lambda: len(collector.spans()) >= 2, *everyone)
        heard += [client.get(page).text for page in pages]

        family = {pid for service in everyone for pid in service.descendants()}
        assert len(family) >= 6
        heard += [command_line(pid) for pid in family]
        if ps := shutil.which("ps"):
            listed = subprocess.run([ps, "-eo", "args"], capture_output=True, text=True, timeout=30)
            heard.append(listed.stdout)
        children = worker.descendants() - {worker.pid}
        assert not any("--database-url" in command_line(pid) for pid in children)
        child = min(children)
        assert CANARY in Path(f"/proc/{child}/environ").read_text()  # what is looked for exists

        with psycopg.connect(database_url, autocommit=True) as conn:
            user = conninfo.conninfo_to_dict(with_password)["user"]
            conn.execute(f"ALTER ROLE {user} PASSWORD 'another'".encode())
            conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [user]
            )
        heard += [client.get(page).text for page in pages]
        api.wait_for_word("password authentication failed")
        for service in (worker, reconciler):
            service.wait_for_word("database_unavailable")
        heard.append(str(invoke(with_password, "jobs", "list").refused("database_unavailable")))
        heard += [str(request) for request in collector.requests]
    heard += [service.said for service in everyone]

    said = "\n".join(heard)
    assert "cannot use postgresql://" in said
    assert "password authentication failed" in said
    assert CANARY not in said
    assert key not in said


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


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
def test_a_url_that_leads_nowhere_is_not_quoted(url: str, words: tuple[str, ...]) -> None:
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
        Link(url, purpose="test"),
    ]


async def _shown(url: str) -> str:
    return " ".join(map(repr, await _things(url)))


def test_what_holds_a_url_does_not_show_it(with_password: str) -> None:
    assert CANARY not in asyncio.run(_shown(with_password))
    with psycopg.connect(with_password) as conn:
        assert CANARY not in repr(conn)
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
def test_a_password_that_cannot_be_hidden_is_warned_of_and_not_repeated(
    capsys: pytest.CaptureFixture[str], form: str
) -> None:
    """It is on no command line that this process was started with, so there is nothing to blank out."""
    conceal_passwords(form.format(f"postgresql://u:{CANARY}@h/db").split())
    conceal_passwords(form.format("postgresql://u@h/db").split())
    conceal_passwords(["worker", f"postgresql://u:{CANARY}@h/db"])

    warned = capsys.readouterr().err
    assert warned.count("DATABASE_URL_FILE") == 1
    assert CANARY not in warned


@pytest.mark.parametrize(
    "text",
    [
        f"cannot use postgresql://u:{CANARY}@host:5432/db, it says",
        f"'postgresql+psycopg://u:{CANARY}@host/db'",
        f"postgresql://u:x@{CANARY}@host/db",
        f"redis://:{CANARY}@cache:6379/0",
        f"host=h password={CANARY} port=5432",
        f"host=h password='{CANARY} \\' more' port=5432",
        f"connect(user='u', Password = {CANARY})",
        f"amqp://guest:{CANARY}/@queue/%2f",
    ],
)
def test_passwords_are_taken_out_of_the_errors_of_others(text: str) -> None:
    scrubbed = without_passwords(text)

    assert CANARY not in scrubbed
    assert "***" in scrubbed


@pytest.mark.parametrize("piece", ["a.", "a-", "x://a:", "password = ", "a:b@"])
def test_a_long_text_is_looked_through_in_one_go(piece: str) -> None:
    """With the square of its length, each of these would outlast the time that a test may take."""
    without_passwords(piece * 100_000)


@pytest.mark.parametrize(
    "text", ["see https://host:8080/path and mail a@b.c", "time 12:30 @ noon", "password missing"]
)
def test_what_is_no_password_stays(text: str) -> None:
    assert without_passwords(text) == text


def test_a_key_is_in_no_log_and_no_answer(database_url: str) -> None:
    key, unknown = make_key(database_url, Scope.READ), keys.new_key().text
    answers = []
    with ExitStack() as stack:
        api = Service("--verbose", "api", "--port", "0", DATABASE_URL=database_url)
        ended: list[str] = []
        stack.callback(lambda: ended.append(api.end()))
        client = stack.enter_context(httpx2.Client(base_url=api.address(), timeout=30))
        for headers, path in (
            ({"Authorization": f"Bearer {key}"}, "/jobs"),
            ({"Authorization": f"Bearer {unknown}"}, "/jobs"),
            ({"Authorization": f"Basic {key}"}, "/jobs"),
            ({"Authorization": key}, "/jobs"),
            ({"Authorization": f"Bearer {key}", "traceparent": key}, "/jobs"),
            ({"X-Request-Id": "x", "Cookie": f"key={key}"}, "/jobs"),
            ({}, "/openapi.json"),
        ):
            answer = client.get(path, headers=headers)
            answers.append(f"{answer.headers} {answer.text}")
        with psycopg.connect(database_url, autocommit=True) as conn:
            conn.execute("ALTER TABLE faultline.jobs RENAME TO hidden")
            broken = client.get("/jobs", headers={"Authorization": f"Bearer {key}"})
            answers.append(broken.text)
    everything = "\n".join([*answers, *ended])

    assert broken.status_code >= 500
    assert re.search(r"flk_[a-z0-9]{8}_[A-Za-z0-9_-]{20,}", everything) is None  # no example either
    for whole in (key, unknown):
        assert whole not in everything
        assert whole.rpartition("_")[2] not in everything
        assert keys.hash_of(whole).hex() not in everything


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
    """Else the tests above could not tell."""
    assert not any(CANARY in value for value in os.environ.values())
