"""Each way to write by the ORM, with every fault at every database call."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from faultline.testing import ALL_FAULTS, Fault, PointKind, ZombieEffect, zombies
from tests.adapters.django.conftest import Shop
from tests.slow import slow_unless

pytestmark = pytest.mark.timeout(300)

ARGS = {"invoice": 42}


def paid_once(conn: psycopg.Connection[Any]) -> None:
    [(count,)] = conn.execute("SELECT count(*) FROM shop_payment WHERE invoice = 42").fetchall()
    assert count == 1, f"invoice 42 was paid {count} times"


# What a handler sends; BEGIN goes with the next one. If the server's time zone is not Django's, Django sets
# it on its new connection first.
TIME_ZONE = "SELECT set_config('TimeZone', %s, false)"
SENT = {
    "pay": [
        "faultline.open_transaction()",
        'INSERT INTO "shop_payment"',
        "faultline.close_transaction()",
        "COMMIT",
    ],
    "pay_in_own_block": [
        'INSERT INTO "shop_payment"',
        "faultline.commit()",
        "COMMIT",
    ],
    "pay_with_receipt": [
        "faultline.open_transaction()",
        'INSERT INTO "shop_payment"',
        'SAVEPOINT "s1"',
        'INSERT INTO "shop_receipt"',
        'RELEASE SAVEPOINT "s1"',
        "faultline.close_transaction()",
        "COMMIT",
    ],
}
SENT["pay_on_given_connection"] = SENT["pay"]


@pytest.mark.parametrize("name", slow_unless(SENT, "pay"))
def test_a_payment_is_made_once_whatever_happens_to_its_worker(shop: Shop, name: str) -> None:
    report = zombies(shop.app, getattr(shop.tasks, name), ARGS, invariant=paid_once)
    calls = [point.what for point in report.points if point.kind is PointKind.DATABASE]
    sent = calls[1:] if calls[0] == TIME_ZONE else calls
    assert len(sent) == len(SENT[name])
    assert all(found.startswith(wanted) for found, wanted in zip(sent, SENT[name], strict=True))
    assert all(report.injected[fault] == len(report.points) for fault in ALL_FAULTS[:-1])
    assert report.injected[Fault.LOST_ANSWER] > 0
    assert report.takeovers > len(report.points)
    assert report.refusals > 0


def test_the_control_a_payment_in_a_plain_block_is_made_twice(shop: Shop) -> None:
    with pytest.raises(ZombieEffect) as found:
        zombies(
            shop.app,
            shop.tasks.pay_naively,
            ARGS,
            invariant=paid_once,
            faults=[Fault.CRASH, Fault.PAUSE, Fault.SUPERSEDE],
        )
    report = found.value.report
    assert {run.fault for run in report.violations} == {Fault.CRASH, Fault.PAUSE, Fault.SUPERSEDE}


@pytest.mark.slow
def test_an_async_handler_pays_once_whatever_happens_to_its_worker(shop: Shop) -> None:
    """Its ORM calls run in a thread, and each of them is awaited on the loop."""
    from faultline.adapters.django.testing import zombies as zombies_of_django

    def once() -> None:
        count = shop.models.Payment.objects.filter(invoice=42).count()
        assert count == 1, f"invoice 42 was paid {count} times"

    report = zombies_of_django(shop.tasks.pay_on_a_loop, ARGS, invariant=once)
    kinds = {point.kind for point in report.points}
    assert {PointKind.AWAIT, PointKind.DATABASE} <= kinds
    assert report.refusals > 0
    with pytest.raises(ZombieEffect):
        zombies_of_django(
            shop.tasks.pay_naively_on_a_loop, ARGS, invariant=once, faults=[Fault.SUPERSEDE]
        )
