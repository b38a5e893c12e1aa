"""How often an idle worker polls, and how often it announces itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faultline.statements.statement import Statement
from faultline.workers.idleness import Idleness


class Database:
    """Answers announcements, and notes them."""

    def __init__(self, *, is_led: bool) -> None:
        self.is_led = is_led
        self.sent: list[str] = []

    async def run(self, statement: Statement[Any]) -> Any:
        self.sent.append("announce" if "announce_idle" in statement.sql else "withdraw")
        return self.is_led


def idleness_of(database: Database) -> Idleness:
    idleness = Idleness("w", database.run)
    idleness.listen(is_listening=True)
    return idleness


@pytest.mark.parametrize(("is_led", "factor"), [(True, 5), (False, 1)])
def test_an_announced_worker_polls_less_often_only_while_a_reconciler_leads(
    is_led: bool, factor: int
) -> None:
    idleness = idleness_of(Database(is_led=is_led))
    assert idleness.poll_factor == 1
    asyncio.run(idleness.is_free(["default"], now=0.0))
    assert idleness.poll_factor == factor


def test_a_worker_polls_as_usual_while_it_is_busy_or_does_not_listen() -> None:
    idleness = idleness_of(Database(is_led=True))
    asyncio.run(idleness.is_free(["default"], now=0.0))
    asyncio.run(idleness.is_busy((), now=0.0))
    assert idleness.poll_factor == 1
    asyncio.run(idleness.is_free(["default"], now=1.0))
    assert idleness.poll_factor == 5
    idleness.listen(is_listening=False)
    assert idleness.poll_factor == 1


def test_a_worker_asks_more_often_for_a_leader_while_it_knows_of_none() -> None:
    database = Database(is_led=False)
    idleness = idleness_of(database)
    for now in (0.0, 4.0, 6.0):
        asyncio.run(idleness.is_free(["default"], now=now))
    assert database.sent == ["announce"] * 2
    database.is_led = True
    for now in (12.0, 20.0, 40.0, 43.0):
        asyncio.run(idleness.is_free(["default"], now=now))
    assert database.sent == ["announce"] * 4
