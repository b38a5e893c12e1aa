"""The table of goals, judged by samples with known ratios."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.comparison import Sample
from benchmarks.comparison_goals import BEST_POSTGRESQL, BEST_PYTHON
from benchmarks.goal import GoalVerdict
from benchmarks.peer import Peer
from benchmarks.results import Participant, Results
from benchmarks.tables import as_markdown

RATES = {
    "faultline": {
        "drain": [3000.0, 6000.0],
        "write": [900.0],
        "write_each": [900.0],
        "write_message": [1200.0],
        "single_enqueue": [100.0, 100.0],
        "latency_p50": [2.0],
    },
    "naive": {"drain": [3300.0, 6600.0]},
    "pgqueuer": {
        "drain": [2000.0, 4000.0],
        "write": [9000.0],
        "write_each": [300.0],
        "latency_p50": [1.0],
    },
    "procrastinate": {"drain": [60.0, 120.0], "write_each": [100.0], "latency_p50": [4.0]},
    "pg_boss": {"write_each": [800.0], "latency_p50": [3.0], "single_enqueue": [40.0, 40.0]},
    "celery": {"single_enqueue": [400.0, 400.0], "latency_p50": [0.5]},
    "oban": {"single_enqueue": [200.0]},
}


def peer(name: str) -> Peer:
    runtime = "node" if name == "pg_boss" else "python"
    return Peer(
        name=name,
        title=name.title(),
        broker="redis" if name == "celery" else "postgresql",
        runtime=runtime,
        packages=(),
        settings="",
        finished="SELECT 0",
        jobs={},
        folder=Path(),
    )


def results() -> Results:
    samples = [
        Sample(repeat=repeat, workload=m, peer=name, jobs=1, concurrency=1, values={m: value})
        for name, measures in RATES.items()
        for m, values in measures.items()
        for repeat, value in enumerate(values)
    ]
    origin = dict.fromkeys(
        ("command", "commit", "seed", "machine", "cores", "postgres", "python", "faultline"), ""
    )
    return Results(
        origin={**origin, "made_at": ""},
        settings={"postgres": {}, "repeats": 2, "scale": 1.0, "took_seconds": 1},
        participants=[Participant(peer(name)) for name in RATES],
        samples=samples,
    )


def verdict(what: str, against: str) -> GoalVerdict:
    found = [v for v in results().verdicts if what in v.what and against in v.against]
    assert len(found) == 1, found
    return found[0]


def test_a_missed_goal_says_by_which_share_it_was_missed() -> None:
    missed = verdict("no-op jobs drained", "PgQueuer")
    assert (missed.measured, missed.reached) == (1.5, False)
    assert missed.missed_by == pytest.approx(0.7 / 2.2)
    assert verdict("no-op jobs drained", "procrastinate").reached


def test_the_best_peer_on_postgresql_has_the_worst_ratio_for_faultline() -> None:
    latency = verdict("p50", BEST_POSTGRESQL)
    assert (latency.measured, latency.reached, latency.note) == (2.0, False, "Pgqueuer")


def test_a_peer_that_was_measured_less_often_than_others_is_not_the_best() -> None:
    enqueue = verdict("single enqueue", BEST_POSTGRESQL)
    assert (enqueue.measured, enqueue.note) == (2.5, "Pg_Boss")


def test_redis_is_shown_beside_the_peers_on_postgresql() -> None:
    page = as_markdown(results(), [])
    [row] = [line for line in page.splitlines() if ", Redis" in line and "400" in line]
    assert "| 400 ± 0% (n = 2) | 0.25× (0.25–0.25) |" in row


def test_jobs_in_one_message_are_compared_with_those_that_peers_finish_one_by_one() -> None:
    message = verdict("commit_with", BEST_PYTHON)
    assert (message.measured, message.reached, message.note) == (4.0, True, "Pgqueuer")


def test_the_report_says_what_is_compared_in_a_row() -> None:
    rows = [line.split(" | ") for line in as_markdown(results(), []).splitlines()]
    compared = {(row[0], row[2]) for row in rows if len(row) == 6}
    for beginning, what in (
        ("| no-op jobs drained by one", "a handler per job"),
        ("| no-op jobs in batches", "batches"),
        ("| jobs with one write each in batches", "batches"),
        ("| jobs with one write each, finished one by one", "per-job completion"),
    ):
        assert {w for title, w in compared if title.startswith(beginning)} >= {what}


def test_the_best_python_peer_runs_on_python_and_is_not_part_of_this_project() -> None:
    """Jobs finished one by one are compared: in batches Pgqueuer would be faster."""
    write = verdict("job.transaction()", BEST_PYTHON)
    assert (write.measured, write.reached, write.note) == (3.0, True, "Pgqueuer")


def test_a_goal_without_a_figure_is_listed_as_not_measured() -> None:
    absent = verdict("no-op jobs drained", "graphile-worker")
    assert absent.reached is None
    assert "not measured: graphile_worker or Faultline has no figure" in as_markdown(results(), [])
