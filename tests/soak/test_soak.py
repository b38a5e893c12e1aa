"""Short soaks of both subjects on a shared server, and the limits of a soak."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from faultline.errors import InvalidInput
from faultline_drills.judging.checker import DrillVerdict
from faultline_drills.nemesis import FAULTS, available_faults, draw_faults
from faultline_drills.soak import SoakReport, SoakSettings, run_soak
from faultline_drills.subjects import Subject
from tests.proof import Tally

FAULT_KINDS = ("kill", "stop", "partition", "lost_acknowledgement", "backend_kill")


def soak(
    subject: Subject, server_url: str, faults: tuple[str, ...] = FAULT_KINDS, **given: Any
) -> SoakReport:
    usual = {"seconds": 7, "longest_pause_seconds": 0.8, "workers": 3, "producers": 2}
    settings = SoakSettings(subject=subject, faults=faults, **{**usual, **given})
    return run_soak(settings, server_url=server_url)


@pytest.mark.slow
def test_a_soak_finds_nothing_wrong_with_faultline(server_url: str, tally: Tally) -> None:
    """Another seed is tried if the faults had no effect within the few seconds."""
    for seed in range(1, 5):
        report = soak(Subject.FAULTLINE, server_url, seed=seed)
        if report.judgement.verdict is not DrillVerdict.UNKNOWN:
            break
    tally("soak", scenarios=1, **report.tally)
    assert report.judgement.verdict is DrillVerdict.VALID, report.judgement.findings
    assert report.tally["kills"] > 0
    assert report.tally["takeovers"] > 0
    assert report.tally["limited_keys"] > 2


@pytest.mark.slow
def test_a_soak_finds_the_queue_without_a_fence_invalid(server_url: str, tally: Tally) -> None:
    """Whether a resumed worker commits late is chance, so several seeds are tried."""
    busy = {"workers": 2, "jobs_per_second": 40.0, "longest_pause_seconds": 0.3}
    for seed in range(1, 9):
        report = soak(Subject.NAIVE, server_url, faults=("stop",), seed=seed, **busy)
        tally("soak on the control", scenarios=1)
        if report.judgement.verdict is DrillVerdict.INVALID:
            break
    assert report.judgement.verdict is DrillVerdict.INVALID
    assert {"at_most_one_effect", "effects_carry_the_current_token"} & {
        finding.rule for finding in report.judgement.findings
    }


def test_a_soak_too_short_for_its_faults_is_unknown(server_url: str) -> None:
    settings = SoakSettings(
        seconds=0.01, longest_pause_seconds=600, workers=1, producers=1, faults=("kill",)
    )
    report = run_soak(settings, server_url=server_url)
    assert report.judgement.verdict is DrillVerdict.UNKNOWN
    assert "kills: none" in {finding.evidence for finding in report.judgement.findings}


def test_a_nemesis_injects_every_fault_before_it_repeats_one_in_the_order_of_its_seed() -> None:
    def first(count: int, seed: int) -> list[str]:
        endless = draw_faults(list(FAULTS.values()), random.Random(seed))
        return [fault.kind for fault in itertools.islice(endless, count)]

    assert set(first(len(FAULTS), 1)) == set(FAULTS)
    assert first(100, 1) == first(100, 1)
    assert first(100, 1) != first(100, 2)


def test_a_soak_does_not_harm_an_existing_server() -> None:
    mild = {fault.kind for fault in available_faults(owns_server=False, moves_clock=True)}
    assert mild.isdisjoint({"restart", "failover", "exhaustion", "clock_jump"})
    assert "kill" in mild


def test_a_fault_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInput, match="earthquake"):
        SoakSettings(faults=("earthquake",))
