"""Points have reproducible names, and a seed always chooses the same ones."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from faultline_drills.judging.checker import DrillFinding, DrillVerdict
from faultline_drills.proxy import Message, MessageKind
from faultline_drills.subjects import Subject
from faultline_drills.sweep import (
    MessageLabel,
    PointResult,
    SweepFault,
    SweepPoint,
    SweepReport,
    SweepTarget,
    choose,
)
from faultline_drills.sweep.point import label_of, points_of


def message(
    sql: str = "", application: str = "faultline worker", kind: MessageKind = MessageKind.QUERY
) -> Message:
    return Message(1, 1, 1, kind, sql, application, 0.0)


@pytest.mark.parametrize(
    ("sent", "label"),
    [
        (message("SELECT a FROM faultline.claim($1, $2)"), "worker: faultline.claim"),
        (message("SELECT id FROM faultline.jobs WHERE x"), "worker: SELECT faultline.jobs"),
        (message("COMMIT"), "worker: COMMIT"),
        (message("SELECT faultline.commit($1); COMMIT"), "worker: COMMIT"),
        (message("SELECT commit FROM t"), "worker: SELECT commit FROM"),
        (message("", "faultline handler"), "handler: check of a pooled session"),
        (message("SET timezone = 'UTC'; SET x = 1"), "worker: SET timezone"),
        (message("SELECT pg_backend_pid(), 1", "faultline"), "start: SELECT pg_backend_pid"),
        (message("-- why\nCREATE SCHEMA faultline; CREATE"), "worker: CREATE SCHEMA faultline"),
        (message("INSERT INTO t VALUES (1)", "psql"), "handler's own: INSERT INTO t"),
        (message(kind=MessageKind.STARTUP), "worker: startup"),
    ],
)
def test_a_message_is_named_by_what_it_does_and_whose_session_it_is(
    sent: Message, label: str
) -> None:
    assert str(label_of(sent)) == label


def test_a_point_is_one_that_every_undisturbed_run_has_passed() -> None:
    claim, beat = message("SELECT faultline.claim()"), message("SELECT faultline.heartbeat()")
    points = points_of(SweepTarget.WORKER, [[claim, beat, claim, beat, beat], [claim, claim, beat]])
    assert [str(point) for point in points] == [
        "worker: faultline.claim #1",
        "worker: faultline.heartbeat #1",
        "worker: faultline.claim #2",
    ]


def some_points(count: int, target: SweepTarget = SweepTarget.WORKER) -> list[SweepPoint]:
    return [SweepPoint(target, MessageLabel("worker", "COMMIT"), n + 1) for n in range(count)]


def test_a_seed_chooses_the_same_strikes_and_another_seed_others() -> None:
    def chosen(seed: int) -> Sequence[tuple[SweepPoint, SweepFault]]:
        return choose(some_points(50), list(SweepFault), sample=20, seed=seed)

    assert chosen(1) == chosen(1) != chosen(2)
    assert len(set(chosen(1))) == 20


def test_without_a_sample_everything_is_struck_in_every_way() -> None:
    everything = choose(some_points(7), list(SweepFault), sample=None, seed=1)
    assert len(set(everything)) == 7 * len(SweepFault)
    for target in (SweepTarget.MIGRATOR, SweepTarget.SCHEDULER):  # they run no jobs
        chosen = choose(some_points(7, target), list(SweepFault), sample=None, seed=1)
        assert SweepFault.OVERLAP not in {fault for _, fault in chosen}


def test_of_a_scheduler_only_the_messages_about_schedules_are_points() -> None:
    fires, reads = (
        message("SELECT faultline.f()", f"faultline {purpose}")
        for purpose in ("scheduler", "reconciler")
    )
    runs = [[reads, fires, reads]]
    assert [str(point) for point in points_of(SweepTarget.SCHEDULER, runs)] == [
        "scheduler: faultline.f #1"
    ]
    assert len(points_of(SweepTarget.RECONCILER, runs)) == 3


def report(*verdicts: DrillVerdict, tally: dict[str, int] | None = None) -> SweepReport:
    results = tuple(
        PointResult(point, SweepFault.KILL_AFTER, verdict, (DrillFinding("rule", "why"),), {}, 1.0)
        for point, verdict in zip(some_points(len(verdicts)), verdicts, strict=True)
    )
    return SweepReport(
        Subject.FAULTLINE, 1, {}, 100, results, 1.0, {"takeovers": 1} if tally is None else tally
    )


def test_a_sweep_holds_when_a_few_were_not_reached_and_shows_nothing_when_many() -> None:
    assert report(*[DrillVerdict.VALID] * 99, DrillVerdict.UNKNOWN).verdict is DrillVerdict.VALID
    assert report(*[DrillVerdict.VALID] * 9, DrillVerdict.UNKNOWN).verdict is DrillVerdict.UNKNOWN
    assert report().verdict is DrillVerdict.UNKNOWN


def test_one_broken_rule_outweighs_everything() -> None:
    assert report(*[DrillVerdict.VALID] * 99, DrillVerdict.INVALID).verdict is DrillVerdict.INVALID


def test_kills_without_a_takeover_prove_nothing() -> None:
    assert report(*[DrillVerdict.VALID] * 99, tally={}).missing == ["takeovers: none"]
