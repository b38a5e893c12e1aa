"""The interpretation names the bottleneck; settings are validated."""

from __future__ import annotations

import pytest

from faultline.errors import InvalidSettings
from faultline_drills.bench.bench_settings import BenchSettings
from faultline_drills.bench.interpretation import interpret
from faultline_drills.bench.measurements import MeasuredRate, Times

MS = 0.001


def times(milliseconds: float) -> Times:
    return Times("a", "a", ((milliseconds * MS,),))


def rate(per_second: float) -> MeasuredRate:
    return MeasuredRate("a", "a", 1, (per_second,))


@pytest.mark.parametrize(
    ("round_trip", "commit", "unflushed", "writes_per_second", "says"),
    [
        (0.1, 5.0, 0.2, 1_500, "Commit-bound"),  # ten slots, of which 7.5 wait for the disk
        (4.0, 5.0, 4.5, 1_500, "Round-trip-bound"),
        (0.1, 0.2, 0.15, 3_000, "CPU-bound"),  # 0.6 of ten slots
        (0.1, 5.0, 0.2, 100, "CPU-bound"),  # slow commits, but few slots wait for them
    ],
)
def test_the_interpretation_names_the_bottleneck(
    round_trip: float, commit: float, unflushed: float, writes_per_second: float, says: str
) -> None:
    sentences = interpret(
        times(round_trip),
        times(commit),
        times(unflushed),
        rate(20_000),
        rate(writes_per_second),
        slots=10,
    )
    assert [each for each in sentences if "-bound" in each] == [sentences[1]]
    assert sentences[1].startswith(says)


def test_the_wait_for_the_disk_is_never_negative() -> None:
    sentences = interpret(times(0.1), times(0.2), times(0.3), rate(20_000), rate(3_000), slots=10)
    assert "0.00 ms until it is on disk" in sentences[0]


def test_quantiles_use_all_samples_and_the_spread_uses_the_repeats() -> None:
    measurement = Times("a", "a", ((0.001, 0.002, 0.009), (0.003, 0.004, 0.005)))
    assert measurement.n == 6
    assert measurement.repeats == (0.002, 0.004)
    assert (measurement.p50, measurement.p99, measurement.longest) == (0.003, 0.009, 0.009)


@pytest.mark.parametrize("size", [1, 2, 999, 1000])
def test_a_payload_has_the_requested_size_and_depends_on_the_seed(size: int) -> None:
    [filler] = BenchSettings(payload_bytes=size).arguments().values()
    assert len(filler.encode()) == size
    assert BenchSettings(payload_bytes=size).arguments() == {"filler": filler}
    if size > 100:
        assert BenchSettings(payload_bytes=size, seed=2).arguments() != {"filler": filler}


def test_without_a_payload_a_job_has_no_arguments() -> None:
    assert BenchSettings().arguments() == {}


@pytest.mark.parametrize(
    "given", [{"seconds": 0.5}, {"workers": 0}, {"concurrency": 0}, {"payload_bytes": 1_000_000}]
)
def test_settings_out_of_range_are_rejected(given: dict[str, float]) -> None:
    with pytest.raises(InvalidSettings, match=next(iter(given))):
        BenchSettings(**given)
