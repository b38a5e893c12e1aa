"""The database's clock, told from here."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from faultline.metrics import database_clock
from faultline.metrics.database_clock import DatabaseClock

A_DAY = 86_400


def shown(*, ahead: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=ahead)


def test_it_goes_by_what_the_database_has_shown() -> None:
    clock = DatabaseClock()
    clock.learn(shown(ahead=A_DAY), sent_at=time.monotonic())
    assert clock.at(time.monotonic()) - time.time() == pytest.approx(A_DAY, abs=60)


def test_a_slow_look_does_not_spoil_what_a_quick_one_has_shown() -> None:
    clock = DatabaseClock()
    clock.learn(shown(ahead=A_DAY), sent_at=time.monotonic())
    clock.learn(shown(ahead=0), sent_at=time.monotonic() - 3600)
    assert clock.at(time.monotonic()) - time.time() == pytest.approx(A_DAY, abs=60)


def test_an_old_look_is_forgotten_for_any_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = DatabaseClock()
    clock.learn(shown(ahead=A_DAY), sent_at=time.monotonic())
    monkeypatch.setattr(database_clock, "_FORGET_SECONDS", 0.0)
    clock.learn(shown(ahead=0), sent_at=time.monotonic() - 20)
    assert clock.at(time.monotonic()) - time.time() == pytest.approx(0, abs=60)


def test_it_is_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = DatabaseClock()
    assert clock.is_due()
    clock.learn(shown(ahead=0), sent_at=time.monotonic())
    assert not clock.is_due()
    monkeypatch.setattr(database_clock, "READ_SECONDS", 0.0)
    assert clock.is_due()
