"""The rate of successes, computed from samples of a counter."""

from __future__ import annotations

from faultline.inspector.overview import LedgerSamples, Throughput
from faultline.statements.statistics import LedgerSample


def after(*taken: tuple[float, int]) -> Throughput:
    """The rate after these samples: (second, entries)."""
    samples = LedgerSamples()
    for sample in taken:
        rate = samples.add(LedgerSample(*sample))
    return rate


def test_one_sample_gives_no_rate() -> None:
    assert after((100.0, 50)) == Throughput(None, 0.0)


def test_two_samples_give_the_rate_between_them() -> None:
    assert after((100.0, 50), (102.0, 150)) == Throughput(50.0, 2.0)


def test_the_rate_is_over_the_last_ten_seconds() -> None:
    taken = [(100.0 + second, 7 * second) for second in range(60)]

    assert after(*taken, (160.0, 7 * 59 + 1000)) == Throughput((1000 + 7 * 9) / 10, 10.0)


def test_an_old_sample_is_used_for_a_minute() -> None:
    assert after((100.0, 0), (150.0, 100)) == Throughput(2.0, 50.0)
    assert after((100.0, 0), (161.0, 100)) == Throughput(None, 0.0)


def test_a_counter_that_was_reset_starts_anew() -> None:
    assert after((100.0, 1000), (101.0, 3)) == Throughput(None, 0.0)
    assert after((100.0, 1000), (101.0, 3), (102.0, 8)) == Throughput(5.0, 1.0)


def test_a_clock_that_went_back_starts_anew() -> None:
    assert after((100.0, 10), (99.0, 20)) == Throughput(None, 0.0)
