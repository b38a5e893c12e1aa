"""The database's clock, as this process computes it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from faultline.metrics import meter as database_clock
from faultline.metrics.meter import DatabaseClock

A_DAY = 86_400


def shown(*, ahead: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=ahead)


def test_it_follows_the_databases_clock() -> None:
    clock = DatabaseClock()
    clock.learn(shown(ahead=A_DAY), sent_at=time.monotonic())
    assert clock.at(time.monotonic()) - time.time() == pytest.approx(A_DAY, abs=60)


def test_a_slow_reading_does_not_replace_a_quick_one() -> None:
    clock = DatabaseClock()
    clock.learn(shown(ahead=A_DAY), sent_at=time.monotonic())
    clock.learn(shown(ahead=0), sent_at=time.monotonic() - 3600)
    assert clock.at(time.monotonic()) - time.time() == pytest.approx(A_DAY, abs=60)


def test_an_old_reading_is_replaced_by_any_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = DatabaseClock()
    clock.learn(shown(ahead=A_DAY), sent_at=time.monotonic())
    monkeypatch.setattr(database_clock, "_FORGET_SECONDS", 0.0)
    clock.learn(shown(ahead=0), sent_at=time.monotonic() - 20)
    assert clock.at(time.monotonic()) - time.time() == pytest.approx(0, abs=60)


def test_the_clock_is_read_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = DatabaseClock()
    assert clock.is_due()
    clock.learn(shown(ahead=0), sent_at=time.monotonic())
    assert not clock.is_due()
    monkeypatch.setattr(database_clock, "READ_SECONDS", 0.0)
    assert clock.is_due()
