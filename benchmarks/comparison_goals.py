"""Goals for Faultline compared with its peers, judged by ratios. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.goal import Goal, GoalVerdict
from benchmarks.measurement import number
from benchmarks.peer import NAIVE, RAW_SQL

if TYPE_CHECKING:
    from benchmarks.results import Results

BEST, BEST_PYTHON = "the best peer", "the best Python peer"
BEST_POSTGRESQL = "the best peer on PostgreSQL"
# What both sides of a row do, if there is more than one way.
_HANDLERS = "a handler per job"
_BATCHES = "batches"
_EACH = "per-job completion"

_DRAIN = "no-op jobs drained by one worker process, each fenced and in the ledger"
_DRAIN_BATCH = "no-op jobs in batches (Faultline: a batch handler of up to 100)"
_WRITE_BATCH = "jobs with one write each in batches (Faultline: a fenced transaction for up to 100)"
_MESSAGE = (
    "jobs with one write each, finished one by one (Faultline: in one message, `job.commit_with`)"
)
_WRITE_EACH = "jobs with one write each, finished one by one (Faultline: `job.transaction()`)"
_WRITE = "jobs with one write each, in their own fenced transaction"
_FENCE = "the cost of the fence"
_START = "enqueue → start on an idle worker"
_LOOP = "the same SQL in a bare loop on"


def _drain(against: str, bound: float) -> Goal:
    return Goal(_DRAIN, against, bound, compares=_HANDLERS)


def _batches(what: str, against: str, bound: float) -> Goal:
    return Goal(what, against, bound, compares=_BATCHES)


def _each(what: str, against: str, bound: float) -> Goal:
    return Goal(what, against, bound, compares=_EACH)


def _start(which: str, bound: float) -> Goal:
    return Goal(f"{_START}, {which}", BEST_POSTGRESQL, bound, at_least=False)


# (measure, the peer's folder or one of the best, the goal)
COMPARISON_GOALS = (
    ("drain", "pgqueuer", _drain("PgQueuer", 2.2)),
    ("drain", "graphile_worker", _drain("graphile-worker", 1.05)),
    ("drain", "pg_boss", _drain("pg-boss, which gives its handler a batch", 0.95)),
    ("drain", "procrastinate", _drain("procrastinate", 30)),
    ("drain", "celery", _drain("Celery", 30)),
    ("drain", RAW_SQL, Goal(_DRAIN, f"{_LOOP} one connection", 0.8)),
    ("drain_batch", "pg_boss", _batches(_DRAIN_BATCH, "pg-boss", 1.3)),
    ("drain_batch", "graphile_worker", _batches(_DRAIN_BATCH, "graphile-worker", 1.3)),
    ("write_batch", "pg_boss", _batches(_WRITE_BATCH, "pg-boss", 1.5)),
    ("write_batch", "graphile_worker", _batches(_WRITE_BATCH, "graphile-worker", 3)),
    ("write_message", BEST_PYTHON, _each(_MESSAGE, BEST_PYTHON, 2.7)),
    ("write_message", "graphile_worker", _each(_MESSAGE, "graphile-worker", 1.1)),
    ("write_each", BEST_PYTHON, _each(_WRITE_EACH, BEST_PYTHON, 2.2)),
    ("write_each", "graphile_worker", _each(_WRITE_EACH, "graphile-worker", 0.95)),
    ("write", RAW_SQL, Goal(_WRITE, f"{_LOOP} as many connections", 0.6)),
    ("drain", NAIVE, Goal(_FENCE, "the same worker without it, no-op jobs", 0.85)),
    ("write", NAIVE, Goal(_FENCE, "the same worker without it, one write per job", 0.85)),
    ("bulk_enqueue", BEST, Goal("bulk enqueue, 1,000 at a time", BEST, 1)),
    ("single_enqueue", BEST_POSTGRESQL, Goal("single enqueue", BEST_POSTGRESQL, 1.2)),
    ("latency_p50", BEST_POSTGRESQL, _start("p50", 0.9)),
    ("latency_p99", BEST_POSTGRESQL, _start("p99", 1)),
)


def judge_comparison(results: Results) -> list[GoalVerdict]:
    return [_judge(results, measure, peer, goal) for measure, peer, goal in COMPARISON_GOALS]


def _judge(results: Results, measure: str, against: str, goal: Goal) -> GoalVerdict:
    peer = against
    if against in (BEST, BEST_PYTHON, BEST_POSTGRESQL):
        found = _best(results, measure, goal, against)
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


def _best(results: Results, measure: str, goal: Goal, among: str) -> str | None:
    """Return the peer with the worst ratio for Faultline, without naive and raw_sql.

    A peer that was measured in fewer repeats than others is left out: one value may be chance.
    """
    ratios = {
        participant.peer.name: ratio
        for participant in results.installed
        if not participant.peer.is_own
        and (among != BEST_PYTHON or participant.peer.runtime == "python")
        and (among != BEST_POSTGRESQL or participant.peer.broker == "postgresql")
        and (ratio := results.ratio(measure, participant.peer.name)) is not None
    }
    if not ratios:
        return None
    repeats = max(ratio.n for ratio in ratios.values())
    often = [name for name, ratio in ratios.items() if ratio.n == repeats]
    hardest = min if goal.at_least else max
    return hardest(often, key=lambda name: ratios[name].median)
