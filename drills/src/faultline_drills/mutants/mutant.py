"""A mutant: one bug as an edit of the source, and the layer that must find it."""

from __future__ import annotations

from dataclasses import dataclass

from faultline_drills.explorer.programs import PROGRAMS

SEED = 1  # for every layer
PROTOCOL = "sql/protocol.sql"
ENQUEUE = "sql/enqueue.sql"
UNIQUE = "sql/unique.sql"
CLAIMING = "sql/claiming.sql"
PLACES = "sql/places.sql"
RECOVERY = "sql/recovery.sql"
SNOOZE = "sql/snooze.sql"
PROGRESS = "sql/progress.sql"
INTERVALS = "sql/intervals.sql"
RETENTION = "sql/retention.sql"
OPERATING = "sql/operating.sql"
GUARDS = "sql/guards.sql"
HANDLER_TRANSACTIONS = "sql/handler_transactions.sql"
MIGRATION = "sql/migrations/0001_initial.sql"
OUTCOMES = "workers/outcomes.py"
UNANSWERED_COMMIT = "workers/unanswered_commit.py"
EXECUTION = "workers/execution.py"
SESSION_SETTINGS = "statements/session_settings.py"


@dataclass(frozen=True, slots=True)
class Edit:
    path: str  # within the package
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Layer:
    """A command of `faultline drill` that must fail on the mutant."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    bug: str  # in a few words
    killed_by: Layer
    edits: tuple[Edit, ...]
    blocks_the_drill: bool = False  # exit code 2 counts as found


def drill(*scenarios: str) -> Layer:
    options = ("--seed", str(SEED), "--jobs", "6", "--timeout-seconds", "30")
    return Layer(f"drill {' '.join(scenarios)}", ("run", *scenarios, *options))


# Programs of these features have layers of their own; all of them together would take minutes.
_OF_OTHER_LAYERS = ("batch-handler", "limit-", "schedule-", "unique-")
EXPLORER = Layer(
    "explorer",
    (
        *("explore", "--seed", str(SEED), "--interleavings", "60"),
        *[
            word
            for name in PROGRAMS
            if not name.startswith(_OF_OTHER_LAYERS)
            for word in ("--program", name)
        ],
    ),
)
MISMATCHED = drill("mismatched_token_or_lease")


def sql_mutant(
    name: str,
    bug: str,
    killed_by: Layer,
    *changes: tuple[str, str],
    blocks_the_drill: bool = False,
    path: str = PROTOCOL,
) -> Mutant:
    edits = tuple(Edit(path, old, new) for old, new in changes)
    return Mutant(name, bug, killed_by, edits, blocks_the_drill)
