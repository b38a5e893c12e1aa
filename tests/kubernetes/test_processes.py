"""The manifests at work: everything but the image and the cluster.

The command lines, variables, secrets, probes and grace periods of the chart, as plain processes on a real
PostgreSQL with the accounts of the development overlay.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from faultline import embedded
from tests.conftest import TEST_SETTINGS, administer, roomy_memory, url_of
from tests.kubernetes import manifests
from tests.kubernetes.manifests import K8S
from tests.kubernetes.node import APPLICATION, Pod, running
from tests.kubernetes.reading import read
from tests.waiting import wait_until

STUCK = """
import pathlib
import time
import faultline

app = faultline.Faultline()

@app.task(name="stuck")
def stuck(job: faultline.Job) -> None:
    pathlib.Path("begun").touch()
    while True:
        try:
            time.sleep(60)  # the program cannot import the tests
        except BaseException:
            pass
"""


@pytest.fixture(scope="module")
def server() -> Iterator[embedded.Server]:
    """A server of its own: roles belong to all of a server's databases."""
    with embedded.temporary_server(settings=TEST_SETTINGS, parent=roomy_memory()) as running_server:
        administer(running_server.url, "CREATE DATABASE {}", "faultline")
        with psycopg.connect(url_of(running_server.url, "faultline"), autocommit=True) as conn:
            conn.execute((APPLICATION / "accounts.sql").read_text())
        yield running_server


@pytest.fixture(scope="module")
def secrets(server: embedded.Server) -> dict[str, str]:
    """The development overlay's Secret, with the address of this server in its URLs."""
    overlay = read((APPLICATION / "kustomization.yaml").read_text())
    [secret] = [each for each in overlay["secretGenerator"] if each["name"] == "faultline-database"]
    urls = dict(literal.split("=", 1) for literal in secret["literals"])
    here = urlsplit(server.url)
    return {
        key: url.replace("faultline-postgres:5432", f"{here.hostname}:{here.port}")
        for key, url in urls.items()
    }


def pods(
    home: Path, secrets: dict[str, str], application: Path = APPLICATION, **values: Any
) -> dict[str, Pod]:
    made = manifests.chart().objects({"app": "jobs:app", **values})
    workloads = [each for each in made if each["kind"] in ("Deployment", "Job")]
    operator = read((K8S / "examples" / "operator.yaml").read_text())
    found = [Pod(each, home, secrets, application=application) for each in (*workloads, operator)]
    return {each.name: each for each in found}


@pytest.mark.slow
def test_deployed_processes_start_work_pass_their_probes_and_stop(
    server: embedded.Server, secrets: dict[str, str], tmp_path: Path
) -> None:
    crew = pods(tmp_path, secrets, workerDefaults={"processes": 2})
    assert "the schema is at version" in crew.pop("migrate").complete()
    operator = crew.pop("operator")
    stay = list(crew.values())
    with running(stay):
        for each in stay:
            each.wait_until("startupProbe")
            each.wait_until("readinessProbe")
            assert each.is_well("livenessProbe"), each.output

        # The operator makes a key, a producer enqueues with it, a worker runs the job.
        [key] = re.findall(r"\bflk_[\w-]+", operator.complete())
        job = enqueue(crew["api"], key)
        with psycopg.connect(url_of(server.url, "faultline"), autocommit=True) as conn:
            wait_until(lambda: result_of(conn, job) == "hello, you", "the job's result")
        for name, port, metric in (
            ("worker", "metrics", "faultline_jobs_succeeded_total"),
            ("reconciler", "metrics", "faultline_reconciler_leading"),
            ("api", "http", "faultline_http_requests_total"),
        ):
            wait_until(partial(is_shown, crew[name], port, metric), f"{metric} of the {name}")

        # The database goes away: not ready, and nothing that a restart would help.
        server.shut_down(mode="immediate")
        for each in stay:
            if each.name != "reconciler":  # which does not mind half a minute
                each.wait_until("readinessProbe", says=False)
            assert each.is_well("livenessProbe"), each.output
        server.start()
        for each in stay:
            each.wait_until("readinessProbe")

        for each in stay:
            each.tell_to_go()
        assert {each.name: each.exit_code() for each in stay} == dict.fromkeys(crew, 0)


@pytest.mark.slow
def test_a_worker_whose_handler_never_ends_exits_within_its_grace_period(
    secrets: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    crew = pods(tmp_path, secrets, tmp_path, app="stuck:app", workerDefaults={"drainSeconds": 1})
    crew["migrate"].complete()
    worker = crew["worker"]
    with running([worker]), psycopg.connect(secrets["worker"], autocommit=True) as conn:
        worker.wait_until("readinessProbe")
        conn.execute("SELECT FROM faultline.enqueue('stuck', '{}')")
        wait_until((tmp_path / "begun").exists, "the handler's begin")
        worker.tell_to_go()
        assert worker.exit_code() == 1, worker.output
        assert '"stuck_threads":1' in worker.output.replace('": ', '":')


def enqueue(api: Pod, key: str) -> str:
    body = json.dumps({"task": "hello", "payload": {"name": "you"}}).encode()
    request = urllib.request.Request(  # noqa: S310
        api.url("http", "/jobs"),
        data=body,
        headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        assert answer.status == 201
        return str(json.load(answer)["job_id"])


def result_of(conn: psycopg.Connection[Any], job: str) -> object:
    found = conn.execute("SELECT result FROM faultline.ledger WHERE job_id = %s", [job]).fetchone()
    return found and found[0]


def is_shown(pod: Pod, port: str, metric: str) -> bool:
    with urllib.request.urlopen(pod.url(port, "/metrics"), timeout=30) as answer:  # noqa: S310
        return metric in answer.read().decode()
