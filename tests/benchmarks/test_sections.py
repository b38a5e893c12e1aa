"""Sections of the report judge their figures by the goals."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from benchmarks.before_after import WORKLOADS, Sample
from benchmarks.measurement import measurement
from benchmarks.renewal_cost import Cost
from benchmarks.scaling.drain import Drain, Shape
from benchmarks.scaling.findings import Findings
from benchmarks.section import SECTIONS, Section, SectionContext, load_section
from benchmarks.sections import many_queues, notifications, pinned, renewals, unused_features
from benchmarks.sections.notifications import IdleWorkers
from benchmarks.servers import PostgresServer


def outcomes(section: Section) -> dict[str, bool | None]:
    return {verdict.what: verdict.reached for verdict in section.verdicts}


@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_can_be_loaded_and_has_a_time(name: str) -> None:
    assert callable(load_section(name))
    assert SECTIONS[name].seconds > 0


def test_claims_over_many_queues_are_compared_with_one_queue_in_the_same_round() -> None:
    section = many_queues.as_section(
        {1: [1.0, 2.0], many_queues.SIZES[0]: [1.4, 2.8], many_queues.SIZES[1]: [3.0, 6.0]}
    )
    assert [verdict.measured for verdict in section.verdicts] == [pytest.approx(1.4), 3.0]
    assert list(outcomes(section).values()) == [True, False]
    assert "| 5,000 | 4.50 ms | 3.00× (3.00–3.00) |" in section.markdown


@pytest.mark.slow
def test_claims_over_many_queues_are_measured_on_a_server(server_url: str) -> None:
    context = SectionContext(PostgresServer(server_url, {}), True, 1, lambda step: None)
    section = many_queues.run(context)
    assert all(verdict.measured and verdict.measured > 0 for verdict in section.verdicts)


def idle(workers: int, **changed: float) -> IdleWorkers:
    values: dict[str, Any] = {
        "transactions_per_second": 1.2,
        "connections": 3.0,
        "claims_per_job": 2.5,
        "p50_ms": 2.0,
        "p99_ms": 3.0,
    }
    return IdleWorkers(workers=workers, **{**values, **changed})


def test_notifications_are_judged_by_producers_claims_and_idle_transactions() -> None:
    section = notifications.as_section(
        measurement([0.9, 0.8, 0.86]), [idle(1), idle(100, claims_per_job=20.0, p99_ms=4.0)]
    )
    assert outcomes(section) == {
        "single enqueue by 32 clients": True,
        "transactions of an idle worker, of 1": True,
        "connections of an idle worker": True,
        "transactions of an idle worker, of 100": True,
        "claims per job, 100 idle workers": False,
        "enqueue → claim p50, 100 idle workers": True,
        "enqueue → claim p99, 100 idle workers": False,
    }
    wanted = {verdict.what: verdict.wanted for verdict in section.verdicts}
    assert wanted["connections of an idle worker"] == "≤ 3"


def test_renewals_are_judged_by_processor_time_and_hot_updates() -> None:
    costs = [Cost(6.0, 300.0, 0.95), Cost(9.0, 310.0, 0.2), Cost(7.0, 290.0, 0.92)]
    section = renewals.as_section(costs, 10_000)
    assert [verdict.measured for verdict in section.verdicts] == [7.0, 92.0]
    assert all(outcomes(section).values())


def test_a_pinned_snapshot_is_judged_by_the_last_tenth() -> None:
    shape = Shape(name="batches", jobs=10, repeats=1, seconds=1.0)
    drains = [
        Drain("batches", held, 0, 10, (*(50.0,) * 9, last))
        for held, last in ((True, 91.0), (False, 100.0))
    ]
    section = pinned.as_section(Findings(shapes=[shape], drains=drains))
    [verdict] = section.verdicts
    assert (verdict.measured, verdict.reached) == (0.91, True)


def test_unused_features_are_judged_by_processor_time_within_a_round() -> None:
    samples = {}
    for workload in WORKLOADS:
        samples["before", workload] = [Sample(1.0, 2.0, 2.0), Sample(2.0, 4.0, 4.0)]
        samples["after", workload] = [Sample(9.0, 2.0, 2.0), Sample(9.0, 4.0, 4.4)]
    section = unused_features.as_section(samples)
    assert len(section.verdicts) == len(WORKLOADS)
    assert [verdict.measured for verdict in section.verdicts] == [pytest.approx(1.025)] * 3
    assert all(outcomes(section).values())


def test_a_section_that_ends_its_program_does_not_end_the_run(
    monkeypatch: pytest.MonkeyPatch, server_url: str
) -> None:
    """Some sections call commands, which give up by `SystemExit`."""
    from benchmarks import run
    from benchmarks.__main__ import plan_of

    def give_up(context: SectionContext) -> Section:
        sys.exit("workers did not start")

    class Silent:
        def show(self, text: str) -> None: ...

    monkeypatch.setattr(run, "load_section", lambda name: give_up)
    done: dict[str, Section] = {}
    missing: dict[str, str] = {}
    plan = plan_of(seed=1, chosen_sections="renewals")
    server = PostgresServer(server_url, {})
    run._run_sections(plan, server, [], Silent(), done, missing)  # type: ignore[arg-type]
    assert missing == {"renewals": "SystemExit: workers did not start"}
