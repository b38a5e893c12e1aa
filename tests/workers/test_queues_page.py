"""The examples of docs/queues.md: they are read as the page says."""

from __future__ import annotations

import asyncio
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from faultline import Faultline, Job, QueueShare
from faultline.queue_shares import parse_queues
from tests.lease_history import most_leases
from tests.running import Connection, EventTap, count
from tests.waiting import idle, wait_until_async

PAGE = (Path(__file__).parents[2] / "docs" / "queues.md").read_text()
MEANT = {
    "billing": {"billing": QueueShare()},
    "billing:5": {"billing": QueueShare(5)},
    "billing=3": {"billing": QueueShare(weight=3)},
    "billing:5=3": {"billing": QueueShare(5, 3)},
    "*": {"*": QueueShare()},
    "*:10": {"*": QueueShare(10)},
    "eu:billing:5": {"eu:billing": QueueShare(5)},
    "shard:1:*": {"shard:1": QueueShare()},
}


def test_every_form_in_the_table_means_what_it_says() -> None:
    forms = re.findall(r"^\| `([^`]+)` \|", PAGE, flags=re.MULTILINE)
    assert {form: parse_queues(form) for form in forms} == MEANT


def test_the_worker_of_the_example_keeps_to_its_slots(
    app: Faultline, conn: Connection, events: EventTap, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue in ("billing", "mail", "other"):

        @app.task(name=f"run.{queue}", queue=queue)
        async def run(job: Job) -> None:
            await idle(0.001)

        run.enqueue_many([{}] * 100)
    shop, module = types.ModuleType("shop"), types.ModuleType("shop.app")
    module.app = app  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop", shop)
    monkeypatch.setitem(sys.modules, "shop.app", module)
    [example] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102 - the code on the page

    async def run_until_empty() -> None:
        working = asyncio.create_task(names["work"]())

        async def is_empty() -> bool:
            return count(conn, "faultline.ledger") == 300

        await wait_until_async(is_empty, "the end of all jobs")
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

    asyncio.run(run_until_empty())
    most = most_leases(conn)
    assert (most["billing"] <= 5, most["mail"] <= 20, most["other"] <= 10) == (True, True, True)
    [started] = events.of("worker_started")
    assert started["queue_slots"] == {"billing": 5, "mail": 20, "*": 10}
    assert started["queue_weights"] == {"mail": 2}
    assert started["concurrency"] == 35
