"""Without tracing, OpenTelemetry is not imported; the variables that decide it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.running import Connection, value
from tests.tracing.collector import collecting

ROOT = Path(__file__).parents[2]

# Enqueue, run and commit, in one process; then say what is loaded.
PROGRAM = """
import json, sys
{before}
import faultline
import faultline.cli.worker
from faultline.testing import run_until_idle
from faultline.tracing import tracing

app = faultline.Faultline()

@app.task(name="nothing")
async def nothing(job: faultline.Job) -> None:
    async with job.transaction():
        pass

@app.task(name="plain")
def plain(job: faultline.Job) -> None:
    pass

nothing.enqueue()
plain.enqueue_many([{{}}] * 3)
assert len(run_until_idle(app)) == 4
app.close()
loaded = [name for name in sys.modules if name.startswith("opentelemetry")]
print(json.dumps({{"is_on": tracing.spans is not None, "loaded": loaded}}))
"""

WITH_A_PROVIDER = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
"""


def environment(url: str, **more: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}
    kept.pop("FAULTLINE_TRACING", None)
    return {**kept, "DATABASE_URL": url, **more}


def run(url: str, before: str = "", **more: str) -> dict[str, Any]:
    program = PROGRAM.format(before=before)
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment(url, **more),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def carried(conn: Connection) -> int:
    return int(value(conn, "SELECT count(trace_context) FROM faultline.jobs"))


def test_without_opentelemetry_nothing_of_it_is_imported_or_written(
    database_url: str, conn: Connection
) -> None:
    assert run(database_url) == {"is_on": False, "loaded": []}
    assert carried(conn) == 0


@pytest.mark.slow
def test_a_library_that_imports_the_api_alone_switches_nothing_on(
    database_url: str, conn: Connection
) -> None:
    seen = run(database_url, "from opentelemetry import trace")
    assert seen["is_on"] is False
    assert not any(name.startswith("opentelemetry.sdk") for name in seen["loaded"])
    assert carried(conn) == 0


def test_an_application_that_sets_up_opentelemetry_is_traced_without_a_word(
    database_url: str, conn: Connection
) -> None:
    assert run(database_url, WITH_A_PROVIDER)["is_on"] is True
    assert carried(conn) == 4


@pytest.mark.slow
def test_an_operator_can_forbid_it(database_url: str, conn: Connection) -> None:
    assert run(database_url, WITH_A_PROVIDER, FAULTLINE_TRACING="off")["is_on"] is False
    assert carried(conn) == 0


@pytest.mark.slow
def test_an_endpoint_in_the_environment_is_not_for_applications_to_obey(
    database_url: str, conn: Connection
) -> None:
    """A worker does; a program that imports Faultline decides for itself."""
    seen = run(database_url, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    assert seen == {"is_on": False, "loaded": []}
    assert carried(conn) == 0


# ── the worker's own ideas about its environment ─────────────────────────────────────────────────


def work(url: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "faultline", "--app", "tests.tracing.apps:app"]
    return subprocess.run(
        [*command, "--log-format", "json", "worker", "--max-jobs", "1", "--queues", "shop"],
        cwd=ROOT,
        env=environment(url, **more),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def without_opentelemetry(tmp_path: Path) -> str:
    """A PYTHONPATH on which importing OpenTelemetry fails."""
    package = tmp_path / "opentelemetry"
    package.mkdir()
    missing = "raise ModuleNotFoundError('No module named opentelemetry', name='opentelemetry')\n"
    (package / "__init__.py").write_text(missing)
    return os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])


@pytest.fixture
def one_job(conn: Connection) -> None:
    conn.execute("SELECT faultline.enqueue('tests.tracing.apps.nothing', queue => 'shop')")


def test_a_worker_without_opentelemetry_says_what_to_install(
    database_url: str, without_opentelemetry: str
) -> None:
    ran = work(database_url, FAULTLINE_TRACING="on", PYTHONPATH=without_opentelemetry)
    assert ran.returncode == 1
    assert "[tracing_unavailable]" in ran.stderr
    assert "pip install 'faultline-queue[tracing]'" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("one_job")
def test_an_endpoint_that_is_there_for_others_does_not_stop_a_worker(
    database_url: str, conn: Connection, without_opentelemetry: str
) -> None:
    ran = work(
        database_url,
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
        PYTHONPATH=without_opentelemetry,
    )
    assert ran.returncode == 0, ran.stderr
    events = [json.loads(line) for line in ran.stderr.splitlines()]
    assert "tracing_unavailable" in [event.get("code") for event in events]
    assert value(conn, "SELECT state FROM faultline.jobs") == "succeeded"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"FAULTLINE_TRACING": "perhaps"}, "neither on nor off"),
        ({"FAULTLINE_TRACING": "on", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "is not supported"),
    ],
)
def test_settings_that_cannot_be_met_are_refused_at_the_start(
    database_url: str, settings: dict[str, str], complaint: str
) -> None:
    ran = work(database_url, **settings)
    assert ran.returncode == 2
    assert "[invalid_settings]" in ran.stderr
    assert complaint in ran.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("one_job")
@pytest.mark.parametrize(
    ("settings", "is_on"),
    [
        ({"OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_TRACES_EXPORTER": "none"}, False),
        ({"FAULTLINE_TRACING": "off"}, False),
        ({}, True),
    ],
    ids=str,
)
def test_the_variables_that_disable_the_sdk_disable_tracing(
    database_url: str, conn: Connection, settings: dict[str, str], is_on: bool
) -> None:
    with collecting() as collector:
        ran = work(database_url, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **settings)
    assert ran.returncode == 0, ran.stderr
    assert value(conn, "SELECT state FROM faultline.jobs") == "succeeded"
    assert (collector.paths != []) is is_on
