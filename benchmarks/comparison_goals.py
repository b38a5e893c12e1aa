"""Goals for Faultline compared with its peers, judged by ratios. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.goal import Goal, GoalVerdict
from benchmarks.measurement import number
from benchmarks.peer import NAIVE, RAW_SQL

if TYPE_CHECKING:
    from benchmarks.results import Results

BEST, BEST_PYTHON = "the best peer", "the best Python peer"
_DRAIN = "no-op jobs drained by one worker process, each fenced and in the ledger"
_WRITE = "jobs with one write each, in their own fenced transaction"
_WRITE_EACH = (
    "jobs with one write each, finished one by one (Faultline: in their own fenced transaction)"
)
_DRAIN_BATCH = "no-op jobs in batches (Faultline: a batch handler of up to 100)"
_WRITE_BATCH = "jobs with one write each in batches (Faultline: a fenced transaction for up to 100)"
_FENCE = "the cost of the fence"

# (measure, the peer's folder or BEST or BEST_PYTHON, the goal)
COMPARISON_GOALS = (
    ("drain", "pgqueuer", Goal(_DRAIN, "PgQueuer", 2)),
    ("drain", "graphile_worker", Goal(_DRAIN, "graphile-worker", 1)),
    ("drain", "pg_boss", Goal(_DRAIN, "pg-boss", 1)),
    ("drain", "procrastinate", Goal(_DRAIN, "procrastinate", 30)),
    ("drain", "celery", Goal(_DRAIN, "Celery", 30)),
    ("drain", RAW_SQL, Goal(_DRAIN, "the same SQL in a bare loop on one connection", 0.8)),
    ("write_each", BEST_PYTHON, Goal(_WRITE_EACH, f"{BEST_PYTHON}, per-job completion", 3)),
    ("write", RAW_SQL, Goal(_WRITE, "the same SQL in a bare loop on as many connections", 0.6)),
    ("drain_batch", "pg_boss", Goal(_DRAIN_BATCH, "pg-boss", 1.3)),
    ("drain_batch", "graphile_worker", Goal(_DRAIN_BATCH, "graphile-worker", 1.3)),
    ("write_batch", "pg_boss", Goal(_WRITE_BATCH, "pg-boss", 1.5)),
    ("write_batch", "graphile_worker", Goal(_WRITE_BATCH, "graphile-worker", 3)),
    ("drain", NAIVE, Goal(_FENCE, "the same worker without it, no-op jobs", 0.85)),
    ("write", NAIVE, Goal(_FENCE, "the same worker without it, one write per job", 0.85)),
    ("bulk_enqueue", BEST, Goal("bulk enqueue, 1,000 at a time", BEST, 1)),
    ("single_enqueue", BEST, Goal("single enqueue", BEST, 1)),
    ("latency_p50", BEST, Goal("enqueue → start on an idle worker, p50", BEST, 1, at_least=False)),
    ("latency_p99", BEST, Goal("enqueue → start on an idle worker, p99", BEST, 1, at_least=False)),
)


def judge_comparison(results: Results) -> list[GoalVerdict]:
    return [_judge(results, measure, peer, goal) for measure, peer, goal in COMPARISON_GOALS]


def _judge(results: Results, measure: str, against: str, goal: Goal) -> GoalVerdict:
    peer = against
    if against in (BEST, BEST_PYTHON):
        found = _best(results, measure, goal, only_python=against == BEST_PYTHON)
        if found is None:
            return goal.judge(None, "no peer was measured")
        peer = found
    ratio = results.ratio(measure, peer)
    if ratio is None:
        return goal.judge(None, f"{peer} or Faultline has no figure in this run")
    titles = {participant.peer.name: participant.peer.title for participant in results.participants}
    span = f"{number(ratio.low)}–{number(ratio.high)}, " if ratio.n > 1 else ""
    note = titles[peer] if peer != against else ""
    return goal.judge(ratio.median, note, f"{span}n = {ratio.n}")


def _best(results: Results, measure: str, goal: Goal, *, only_python: bool) -> str | None:
    """Return the peer with the worst ratio for Faultline, without naive and raw_sql."""
    ratios = {
        participant.peer.name: ratio.median
        for participant in results.installed
        if not participant.peer.is_own
        and (participant.peer.runtime == "python" or not only_python)
        and (ratio := results.ratio(measure, participant.peer.name)) is not None
    }
    if not ratios:
        return None
    hardest = min if goal.at_least else max
    return hardest(ratios, key=lambda name: ratios[name])
