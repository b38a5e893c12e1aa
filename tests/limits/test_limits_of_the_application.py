"""The methods of an application that read, set and reset limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faultline import Faultline, InvalidInput, LimitUse, Rate, UnknownLimit
from tests.protocol.steps import Connection, rows

from .steps import claim_all, enqueue


def test_a_limit_is_set_read_and_reset(app: Faultline, conn: Connection) -> None:
    app.set_limit("task:charge", concurrency=2, rate=Rate(10, per=2, burst=4))
    enqueue(conn, [{}] * 3)
    assert len(claim_all(conn)) == 2
    [use] = app.limits()
    assert isinstance(use, LimitUse)
    assert (use.max_running, use.rate_jobs, use.rate_seconds, use.burst) == (2, 10, 2.0, 4)
    assert (use.running, use.waiting, use.changed_by) == (2, 1, "operator")
    assert app.reset_limit("task:charge") == "removed"
    assert app.limits() == []


def test_the_async_methods_do_the_same(app: Faultline) -> None:
    async def use() -> tuple[list[str], str, list[LimitUse]]:
        await app.set_limit_async("task:charge", concurrency=0)
        names = [use.name for use in await app.limits_async()]
        reset = await app.reset_limit_async("task:charge")
        left = await app.limits_async()
        await app.aclose()
        return names, reset, left

    assert asyncio.run(use()) == (["task:charge"], "removed", [])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("charge", {"concurrency": 1}),
        ("task:", {"concurrency": 1}),
        ("task:charge", {}),
        ("task:charge", {"concurrency": -1}),
        ("task:charge", {"concurrency": True}),
        ("task:charge", {"rate": 3}),
        ("task:charge", {"rate": Rate(1, per=1, key="customer")}),
    ],
)
def test_a_limit_that_limits_nothing_or_has_no_name_is_refused(
    app: Faultline, name: str, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        app.set_limit(name, **options)
    assert app.limits() == []


def test_the_reset_of_an_unknown_limit_is_refused_and_recorded(
    app: Faultline, conn: Connection
) -> None:
    with pytest.raises(UnknownLimit, match="there is no limit 'task:charge'"):
        app.reset_limit("task:charge")
    found = rows(conn, "SELECT action, object, result, code FROM faultline.audit_log")
    assert found == [("reset limit", "limit task:charge", "refused", "unknown_limit")]
