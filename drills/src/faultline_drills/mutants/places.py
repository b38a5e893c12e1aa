"""Bugs in limits of concurrency and rates."""

from __future__ import annotations

from faultline_drills.mutants.mutant import (
    PLACES,
    SEED,
    Edit,
    Layer,
    Mutant,
    drill,
    sql_mutant,
)

_PROGRAMS = (
    "limit-claims",
    "limit-takeover",
    "limit-failures",
    "limit-change",
    "limit-crash",
    "limit-repair",
)
_LIMITS = "sql/limits.sql"
EXPLORER = Layer(
    "explorer of limits",
    (
        *("explore", "--seed", str(SEED), "--interleavings", "60"),
        *[word for name in _PROGRAMS for word in ("--program", name)],
    ),
)
_REPAIR = Layer(
    "explorer of the repair",
    (
        *("explore", "--seed", str(SEED), "--interleavings", "60", "--program", "limit-repair"),
        *(
            "--program",
            "takeover",
        ),  # has the takeovers and refusals without which a run shows nothing
    ),
)
_CONCURRENCY = drill("concurrency_limit")
_RATE = drill("rate_limit")
_WAKEUP = drill("limit_wakeup")
_AHEAD = (
    "make_interval(secs => "
    "coalesce(nullif(current_setting('drill.seconds_ahead', true), ''), '0')::float8)"
)

PLACE_MUTANTS = (
    sql_mutant(
        "limit_counted_without_lock",
        "a claim counts the places of a limit without locking its key",
        EXPLORER,
        (
            "ON CONFLICT (limit_key) DO UPDATE SET is_awaited = s.is_awaited WHERE false;",
            "ON CONFLICT DO NOTHING;",
        ),
        path=PLACES,
    ),
    sql_mutant(
        "limit_key_locked_only_if_it_is_still_there",
        "a claim whose limit key is deleted while it waits goes on without a lock",
        _REPAIR,
        (
            "INSERT INTO faultline.limit_states AS s (limit_key) SELECT k FROM unnest(keys) AS k\n"
            "            ON CONFLICT (limit_key) DO UPDATE SET is_awaited = s.is_awaited WHERE false;",
            "PERFORM FROM faultline.limit_states AS s WHERE s.limit_key = ANY (keys)\n"
            "            ORDER BY s.limit_key FOR NO KEY UPDATE;",
        ),
        path=PLACES,
    ),
    sql_mutant(
        "place_not_freed_by_reconcile",
        "a job that is queued again keeps its place",
        EXPLORER,
        (
            "WHEN (NEW.limited AND NEW.state <> 'running' AND OLD.state <> NEW.state)",
            "WHEN (NEW.limited AND NEW.state IN ('succeeded', 'failed') AND OLD.state <> NEW.state)",
        ),
        path=PLACES,
    ),
    sql_mutant(
        "place_not_taken",
        "a job that starts under a limit takes no place",
        EXPLORER,
        ("AND a.max_running IS NOT NULL\n    ON CONFLICT", "AND false\n    ON CONFLICT"),
        path=PLACES,
    ),
    sql_mutant(
        "one_more_than_the_limit",
        "one job more than the limit starts",
        _CONCURRENCY,
        ("        of_limit.max_running - (SELECT", "        of_limit.max_running + 1 - (SELECT"),
        path=PLACES,
    ),
    sql_mutant(
        "bucket_filled_anew_at_each_claim",
        "the starts of earlier claims do not count towards a rate",
        _RATE,
        (
            "ELSE least(of_limit.burst, 1 + floor(",
            "ELSE least(of_limit.burst, of_limit.burst + floor(",
        ),
        ("WHEN state.next_start_at > moment THEN 0\n", "WHEN false THEN 0\n"),
        path=PLACES,
    ),
    sql_mutant(
        "bucket_refilled_by_the_workers_clock",
        "the time that fills a bucket again is the worker's, not the database's",
        _RATE,
        (
            "WHEN state.next_start_at > moment THEN 0\n",
            f"WHEN state.next_start_at > moment + {_AHEAD} THEN 0\n",
        ),
        (
            "1 + floor(extract(epoch FROM moment - state.next_start_at)",
            f"1 + floor(extract(epoch FROM moment + {_AHEAD} - state.next_start_at)",
        ),
        path=PLACES,
    ),
    sql_mutant(
        "starts_counted_before_they_happen",
        "starts count from the moment at which the claim began, not from their own",
        _RATE,
        ("    IF started IS NULL THEN\n", "    IF true THEN\n"),
        path=PLACES,
    ),
    sql_mutant(
        "next_job_not_woken",
        "the end of a job frees its place, and no waiting job becomes due",
        _WAKEUP,
        ("            PERFORM faultline.unpark(key, 1);\n", "            NULL;\n"),
        path=PLACES,
    ),
    Mutant(
        "limits_not_repaired",
        "the reconciler does not repair places and lines",
        _WAKEUP,
        (
            Edit(
                "reconciler/reconciler.py",
                "        if self._has_limits:\n",
                "        if False:\n",
            ),
        ),
    ),
    sql_mutant(
        "declared_key_not_bound",
        "a limit with keys that code declares applies to no task",
        drill("declared_limits"),
        (
            "    PERFORM faultline.bind_argument(b.limit_name, b.task, b.argument, b.fallback, 'code')\n",
            "    PERFORM b.limit_name\n",
        ),
        path=_LIMITS,
    ),
    Mutant(
        "slots_of_a_queue_ignored",
        "a worker claims more jobs of a queue than the queue has slots",
        drill("queue_slots"),
        (
            Edit(
                "workers/queue_groups.py",
                "            return min(at_most, self.slots - taken)\n",
                "            return at_most\n",
            ),
        ),
    ),
)
