"""Passwords and API keys appear in no output and not in the process list."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx2
import psycopg
import pytest
from psycopg import conninfo

from faultline.statements import keys
from faultline.statements.keys import Scope
from tests.api.served import make_key
from tests.cli.conftest import invoke
from tests.loopback import own_address
from tests.security.services import APP, METRICS_PORT, Service, services, wait_while_running
from tests.tracing.collector import collecting


@pytest.mark.slow
def test_no_process_shows_its_password_whatever_happens(
    database_url: str, with_password: str, tmp_path: Path
) -> None:
    """By command line, environment and file; working, failing, and without database."""
    key = make_key(database_url)
    canary = str(conninfo.conninfo_to_dict(with_password)["password"])
    secret_file = tmp_path / "url"
    secret_file.write_text(f"\n  {with_password}\n")
    metrics = own_address()
    outputs: list[str] = []
    with ExitStack() as stack:
        collector = stack.enter_context(collecting())
        client = stack.enter_context(
            httpx2.Client(headers={"Authorization": f"Bearer {key}"}, timeout=30)
        )
        traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}

        start_one = stack.enter_context(services())

        def start(*words: str, **variables: str) -> Service:
            return start_one("--verbose", *words, **variables, **traced)

        served = ("--metrics-host", metrics, "--metrics-port", str(METRICS_PORT))
        options = ("--processes", "2", *served)
        worker = start("--database-url", with_password, "--app", APP, "worker", *options)
        api = start("api", "--port", "0", DATABASE_URL=with_password)
        inspector = start("inspector", "serve", "--port", "0", DATABASE_URL_FILE=str(secret_file))
        reconciler = start(f"--database-url={with_password}", "reconciler")
        processes = (worker, api, inspector, reconciler)

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
            f"http://{metrics}:{METRICS_PORT}/metrics",
        ]
        # Until the page shows the handler's error.
        wait_while_running(lambda: "***" in client.get(pages[0]).text, *processes)
        worker.wait_for_word("job_dead")
        wait_while_running(lambda: len(collector.spans()) >= 2, *processes)
        outputs += [client.get(page).text for page in pages]

        wait_while_running(lambda: len(worker.descendants()) >= 3, *processes)
        for given in (worker, reconciler):  # readable until the process has started
            wait_while_running(partial(is_concealed, canary, given.pid), given)
        family = {pid for service in processes for pid in service.descendants()}
        outputs += [command_line(pid) for pid in family]
        if ps := shutil.which("ps"):
            listed = subprocess.run([ps, "-eo", "args"], capture_output=True, text=True, timeout=30)
            outputs.append(listed.stdout)
        children = worker.descendants() - {worker.pid}
        assert not any("--database-url" in command_line(pid) for pid in children)
        child = min(children)
        assert canary in Path(f"/proc/{child}/environ").read_text()  # what is looked for exists

        with psycopg.connect(database_url, autocommit=True) as conn:
            user = conninfo.conninfo_to_dict(with_password)["user"]
            conn.execute(f"ALTER ROLE {user} PASSWORD 'another'".encode())
            conn.execute(  # and wait until they are gone: till then, they would answer
                "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE usename = %s",
                [user],
            )
        outputs += [client.get(page).text for page in pages]
        api.wait_for_word("does not accept this password")
        for service in (worker, reconciler):
            service.wait_for_word("database_unavailable")
        outputs.append(str(invoke(with_password, "jobs", "list").refused("database_unavailable")))
        outputs += [str(request) for request in collector.requests]
    outputs += [service.output for service in processes]

    everything = "\n".join(outputs)
    assert "cannot use postgresql://" in everything
    assert "does not accept this password" in everything
    assert canary not in everything
    assert key not in everything


def is_concealed(canary: str, pid: int) -> bool:
    return canary not in command_line(pid)


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


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
        assert whole.split("_", 2)[2] not in everything  # the secret, which may contain "_"
        assert keys.hash_of(whole).hex() not in everything
