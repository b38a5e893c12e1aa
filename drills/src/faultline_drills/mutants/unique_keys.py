"""Unique jobs whose key or holder is judged without its lock."""

from __future__ import annotations

from faultline_drills.mutants.mutant import OPERATING, SEED, UNIQUE, Layer, sql_mutant

_CONFLICT = "ON CONFLICT (unique_key) DO UPDATE SET job_id = excluded.job_id WHERE false"
_ROWS = "AS g (key, id, ordinal) WHERE g.key IS NOT NULL\n    ORDER BY g.key, g.ordinal\n"
_LOOK = "NOT EXISTS (SELECT FROM faultline.unique_keys AS k WHERE k.unique_key = g.key)"
_CHANGING = "WHERE j.id = ANY (changing) ORDER BY j.id FOR NO KEY UPDATE;"
_WAITING = "WHERE j.id = ANY (waiting) ORDER BY j.id FOR KEY SHARE;"

# The last one has the takeovers and refusals without which a run shows nothing.
_PROGRAMS = ("unique-job", "unique-replace", "unique-retry", "takeover")
EXPLORER_OF_UNIQUE_KEYS = Layer(
    "explorer of unique keys",
    (
        *("explore", "--seed", str(SEED), "--interleavings", "60"),
        *[word for name in _PROGRAMS for word in ("--program", name)],
    ),
)

UNIQUE_MUTANTS = (
    sql_mutant(
        "unique_looked_up_then_inserted",
        "a unique key is looked up, and inserted if it was not there",
        EXPLORER_OF_UNIQUE_KEYS,
        (_ROWS, _ROWS.replace("IS NOT NULL", f"IS NOT NULL AND {_LOOK}")),
        (_CONFLICT, ""),
        path=UNIQUE,
    ),
    sql_mutant(
        "unique_conflict_without_the_keys_lock",
        "the holder of a unique key is judged without the key's lock",
        EXPLORER_OF_UNIQUE_KEYS,
        (_CONFLICT, "ON CONFLICT DO NOTHING"),
        path=UNIQUE,
    ),
    sql_mutant(
        "unique_replace_without_the_jobs_lock",
        "a job's payload is replaced while a worker claims it",
        EXPLORER_OF_UNIQUE_KEYS,
        (_CHANGING, _CHANGING.replace(" FOR NO KEY UPDATE", "")),
        (_WAITING, _WAITING.replace(" FOR KEY SHARE", "")),
        path=UNIQUE,
    ),
    sql_mutant(
        "unique_retry_without_its_key",
        "an operator's retry makes a second unfinished job of a unique key",
        EXPLORER_OF_UNIQUE_KEYS,
        ("IF other.holder IS NOT NULL AND job.state = 'failed' THEN", "IF false THEN"),
        path=OPERATING,
    ),
)
