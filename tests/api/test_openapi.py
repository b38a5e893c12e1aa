"""Claims about the OpenAPI document, and about everything that it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import grimp
import httpx2
import pytest

from faultline.api.schemas import JobRequest
from tests.api.served import Served, make_key

TOOL = Path(sys.executable).with_name("schemathesis")


@pytest.fixture(scope="module")
def document(client: httpx2.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def test_every_endpoint_documents_its_purpose_and_its_errors(
    document: dict[str, Any],
) -> None:
    for path, verbs in document["paths"].items():
        for verb, endpoint in verbs.items():
            assert endpoint["summary"], (verb, path)
            is_open = path in ("/health", "/ready")
            assert endpoint["security"] == ([] if is_open else [{"key": []}, {"key_header": []}])
            assert is_open or {"401", "403", "429", "503"} <= endpoint["responses"].keys()
            assert "HTTPValidationError" not in str(endpoint)


def test_operations_have_names_that_people_can_read(document: dict[str, Any]) -> None:
    names = [
        endpoint["operationId"]
        for verbs in document["paths"].values()
        for endpoint in verbs.values()
    ]
    assert sorted(names) == [
        *(
            "add_schedule",
            "cancel_job",
            "cancel_jobs",
            "delete_job",
            "delete_jobs",
            "edit_job",
            "edit_jobs",
        ),
        *("enqueue_job", "enqueue_jobs", "export_jobs", "get_health", "get_job"),
        *("get_key", "get_limit"),
        *("get_metrics", "get_openapi", "get_readiness", "get_schedule", "list_audit", "list_jobs"),
        *("list_limits", "list_queues", "list_schedules", "pause_queue", "pause_schedule"),
        *("remove_schedule", "reset_limit", "resume_queue", "resume_schedule", "retry_job"),
        *("retry_jobs", "run_schedule", "set_limit"),
    ]


def test_its_examples_are_jobs_that_it_takes(
    document: dict[str, Any], client: httpx2.Client
) -> None:
    examples = document["components"]["schemas"]["JobRequest"]["examples"]
    assert examples
    for example in examples:
        JobRequest.model_validate(example)
        assert client.post("/jobs", json=example).status_code in (200, 201)


@pytest.mark.slow
@pytest.mark.timeout(300)  # seconds on a quiet machine, minutes on a busy one
def test_nothing_can_be_found_that_the_document_does_not_say(
    server: Served, api_url: str, tmp_path: Path
) -> None:
    """Generated requests from a fixed seed: responses match the document, never 5xx."""
    (tmp_path / "schemathesis.toml").write_text("[generation]\nallow-x00 = false\n")
    hooks = str(Path(__file__).with_name("storable.py"))
    ran = subprocess.run(
        [
            *(TOOL, "run", f"{server.address}/openapi.json"),
            *("--header", f"Authorization: Bearer {make_key(api_url)}"),
            *("--seed", "1", "--max-examples", "8", "--generation-database", "none"),
            *("--request-timeout", "15"),
        ],
        cwd=tmp_path,
        env={**os.environ, "SCHEMATHESIS_HOOKS": hooks},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]


def test_the_api_knows_nothing_of_workers_drills_or_the_inspector() -> None:
    graph = grimp.build_graph("faultline", cache_dir=None)
    for started in ("running_worker", "worker_process"):  # by `app.worker` alone, inside the method
        graph.remove_import(
            importer="faultline.worker_methods", imported=f"faultline.workers.{started}"
        )
    for stranger in ("workers", "reconciler", "drills", "inspector", "testing", "bench", "cli"):
        name = f"faultline.{stranger}"
        if name in graph.modules:
            assert not graph.chain_exists("faultline.api", name, as_packages=True), stranger


def test_a_command_line_that_serves_nothing_does_not_load_the_web_framework() -> None:
    program = (
        "import sys; import faultline.cli.main, faultline.cli.api, faultline.cli.keys;"
        " print(sorted({'fastapi', 'starlette', 'pydantic', 'uvicorn', 'prometheus_client'}"
        " & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
