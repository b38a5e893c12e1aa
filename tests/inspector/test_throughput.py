"""The rate of successes, told from looks at a counter."""

from __future__ import annotations

from faultline.inspector.throughput import Sample, Samples, Throughput


def after(*looks: tuple[float, int]) -> Throughput:
    """What is known after these looks: (second, entries)."""
    samples = Samples()
    for look in looks:
        rate = samples.add(Sample(*look))
    return rate


def test_one_look_tells_nothing() -> None:
    assert after((100.0, 50)) == Throughput(None, 0.0)


def test_two_looks_tell_the_rate_between_them() -> None:
    assert after((100.0, 50), (102.0, 150)) == Throughput(50.0, 2.0)


def test_the_rate_is_over_the_last_ten_seconds() -> None:
    looks = [(100.0 + second, 7 * second) for second in range(60)]

    assert after(*looks, (160.0, 7 * 59 + 1000)) == Throughput((1000 + 7 * 9) / 10, 10.0)


def test_a_look_long_before_still_tells_something_until_a_minute_has_gone() -> None:
    assert after((100.0, 0), (150.0, 100)) == Throughput(2.0, 50.0)
    assert after((100.0, 0), (161.0, 100)) == Throughput(None, 0.0)


def test_a_counter_that_was_reset_starts_anew() -> None:
    assert after((100.0, 1000), (101.0, 3)) == Throughput(None, 0.0)
    assert after((100.0, 1000), (101.0, 3), (102.0, 8)) == Throughput(5.0, 1.0)


def test_a_clock_that_went_back_starts_anew() -> None:
    assert after((100.0, 10), (99.0, 20)) == Throughput(None, 0.0)
