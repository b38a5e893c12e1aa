"""The FastAPI example of docs/running.md: a worker in an application's lifespan."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from faultline import Faultline, Job, JobState
from tests.running import Connection, count
from tests.waiting import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "running.md"


def example() -> str:
    blocks: list[str] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    [found] = [block for block in blocks if "lifespan" in block]
    return found


def test_the_example_on_the_page_runs_jobs_while_the_api_serves(
    app: Faultline, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    @app.task(name="greet")
    async def greet(job: Job, name: str) -> str:
        return f"hello {name}"

    shop, module = types.ModuleType("shop"), types.ModuleType("shop.app")
    module.app = app  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop", shop)
    monkeypatch.setitem(sys.modules, "shop.app", module)
    names: dict[str, Any] = {}
    exec(example(), names)  # noqa: S102 - the code on the page
    api = names["api"]

    async def greeting(name: str) -> str:
        return str((await greet.enqueue_async(name=name)).job_id)

    async def result(job_id: str) -> Any:
        record = await app.get_async(UUID(job_id))
        return record.result if record.state is JobState.SUCCEEDED else None

    api.post("/greetings")(greeting)
    api.get("/results/{job_id}")(result)
    with TestClient(api) as client:
        job_id = client.post("/greetings", params={"name": "you"}).json()
        answer = wait_until(lambda: client.get(f"/results/{job_id}").json(), "the result")
        assert answer == "hello you"
    assert count(conn, "faultline.workers") == 0
