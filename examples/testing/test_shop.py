"""Tests of the shop's handlers: results, retries, and injected faults."""

from typing import Any

import psycopg
import pytest
from shop import pay, pay_carelessly, remind

import faultline
from faultline.testing import ZombieEffect, advance, run_until_idle, zombies


def paid_once(conn: psycopg.Connection[Any]) -> None:
    [(count,)] = conn.execute("select count(*) from payments where invoice = 42").fetchall()
    assert count == 1, f"invoice 42 was paid {count} times"


def test_an_invoice_is_paid(shop: faultline.Faultline) -> None:
    pay.enqueue(invoice=42)
    run_until_idle(shop)  # raises what a handler raises
    with psycopg.connect(shop.database_url) as conn:
        paid_once(conn)


def test_a_reminder_that_failed_is_sent_a_minute_later(shop: faultline.Faultline) -> None:
    remind.enqueue(invoice=42)
    (first,) = run_until_idle(shop, raise_errors=False)
    assert (first.outcome, str(first.exception)) == ("retrying", "the mail server is unreachable")
    assert run_until_idle(shop) == []  # not due yet
    advance(shop, 60)
    (second,) = run_until_idle(shop)
    assert second.result == "reminded of invoice 42"


def test_a_payment_is_made_once_whatever_happens_to_its_worker(shop: faultline.Faultline) -> None:
    zombies(shop, pay, {"invoice": 42}, invariant=paid_once)


def test_zombies_detects_the_careless_handler(shop: faultline.Faultline) -> None:
    with pytest.raises(ZombieEffect) as found:
        zombies(shop, pay_carelessly, {"invoice": 42}, invariant=paid_once)
    print(found.value)
