"""Refused requests are recorded in few rows, and none is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faultline.api.refused_access import MAX_KINDS, RefusedAccess, RefusedAccessLog
from faultline.errors import DatabaseUnavailable
from faultline.statements.audit import Actor
from faultline.statements.statement import Statement
from tests.api.served import BOUND_SECONDS
from tests.waiting import yield_to_loop


def test_a_flood_of_wrong_keys_is_a_few_rows() -> None:
    written: list[tuple[Any, ...]] = []

    async def record(statement: Statement[Any]) -> None:
        written.append(statement.params)

    async def flood() -> None:
        refused = RefusedAccessLog(record)
        for number in range(1000):
            for address in ("a", f"address {number}"):
                actor = Actor("unknown key", f"flk_{number:08}", address)
                refused.note(RefusedAccess(actor, "GET /jobs", "unauthenticated"))
                await yield_to_loop()
        await refused.close()

    asyncio.run(flood())
    assert len(written) <= 2 * (MAX_KINDS + 2)
    assert sum(params[-1] for params in written) == 2000  # and none is lost


@pytest.mark.parametrize("is_away", [False, True], ids=["it has enough", "it is away"])
def test_refusals_that_the_database_does_not_record_are_counted_for_the_next_minute(
    is_away: bool,
) -> None:
    written: list[int] = []

    async def refuse() -> None:
        is_tried = asyncio.Event()

        async def record(statement: Statement[Any]) -> bool:
            written.append(statement.params[-1])
            is_tried.set()
            if is_away and len(written) == 1:
                raise DatabaseUnavailable("away")
            return len(written) > 1

        refused = RefusedAccessLog(record)
        refusal = RefusedAccess(Actor("unknown key", "flk_a", "a"), "GET /", "unauthenticated")
        refused.note(refusal)
        await asyncio.wait_for(is_tried.wait(), BOUND_SECONDS)
        for _ in range(2):
            refused.note(refusal)
        await refused.close()

    asyncio.run(refuse())
    assert written == [1, 3]


def test_a_row_that_is_being_written_when_the_server_stops_is_not_lost() -> None:
    written: list[int] = []

    async def stop_while_writing() -> None:
        is_writing, may_end = asyncio.Event(), asyncio.Event()

        async def record(statement: Statement[Any]) -> None:
            is_writing.set()
            await may_end.wait()
            written.append(statement.params[-1])

        refused = RefusedAccessLog(record)
        refused.note(RefusedAccess(Actor("unknown key", "flk_a", "a"), "GET /", "unauthenticated"))
        await asyncio.wait_for(is_writing.wait(), BOUND_SECONDS)
        closing = asyncio.create_task(refused.close())
        await yield_to_loop()
        may_end.set()
        await asyncio.wait_for(closing, BOUND_SECONDS)

    asyncio.run(stop_while_writing())
    assert written == [1]


def test_refusals_of_one_action_are_one_kind_for_all_its_objects() -> None:
    written: list[tuple[Any, ...]] = []

    async def record(statement: Statement[Any]) -> None:
        written.append(statement.params)

    async def refuse() -> None:
        refused = RefusedAccessLog(record)
        for number in range(100):
            actor = Actor("key", "oncall (flk_abcdefgh)", "192.0.2.1")
            refused.note(RefusedAccess(actor, "cancel", "unknown_job", f"job {number}\0"))
        await refused.close()

    asyncio.run(refuse())
    assert [params[1:] for params in written] == [("cancel", "several", "unknown_job", 100)]
