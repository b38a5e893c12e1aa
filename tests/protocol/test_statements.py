"""Every statement that Python sends is whole and is accepted by PostgreSQL."""

from __future__ import annotations

import importlib
import inspect
import io
import pkgutil
import re
import tokenize
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import faultline.statements
from faultline.config import Retention
from faultline.model import Claim, JobSpec
from faultline.planned_times import Timing
from faultline.statements import job_pages, session_settings, transactions
from faultline.statements.audit import Actor, AuditFilter
from faultline.statements.claim_requests import ClaimRequest
from faultline.statements.firing import DueSchedule
from faultline.statements.invariants import INVARIANTS, Invariant
from faultline.statements.job_filter import JobFilter
from faultline.statements.keys import NewKey
from faultline.statements.leadership import LeaderHeartbeat
from faultline.statements.locks import LapsedHolder
from faultline.statements.progress import ProgressReport
from faultline.statements.statement import Statement

from .steps import Connection

EXPLAINED = ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE")
VERB = re.compile(rf"f?\W+({'|'.join(EXPLAINED)})\b")
FOLDER = Path(faultline.statements.__path__[0])
ID = UUID(int=1)
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
CLAIM = Claim(
    id=str(ID),
    fencing_token=1,
    lease=str(ID),
    **dict.fromkeys(set(Claim._fields) - {"id", "fencing_token", "lease"}),  # type: ignore[arg-type]
)
EXAMPLES: dict[Any, Any] = {
    str: "1",
    int: 1,
    float: 1.0,
    bool: True,
    UUID: ID,
    datetime: MOMENT,
    timedelta: timedelta(seconds=1),
    Claim: CLAIM,
    LeaderHeartbeat: LeaderHeartbeat(1, 0),
    ProgressReport: ProgressReport(CLAIM, 0.5, "half"),
    JobSpec: JobSpec("t", "q", 5, 1, None, 1.0, 2.0, 3.0, 4.0, None, None, {}),
    Invariant: INVARIANTS[0],
    Actor: Actor("role", "me"),
    AuditFilter: AuditFilter(),
    JobFilter: JobFilter(),
    NewKey: NewKey("key", "prefix", b"0" * 32),
    Retention: Retention(),
    DueSchedule: DueSchedule("s", 1, Timing("0 6 * * *"), "once", 1, MOMENT, MOMENT),
    Statement: Statement("SELECT 1", (), lambda rows: None),
}
# Calls with an argument whose text has a special form.
SPECIAL: dict[str, Callable[[], Statement[Any]]] = {
    "clock.reschedule_stranded": lambda: call("clock", "reschedule_stranded", after=None),
    "job_pages.id_page": lambda: job_pages.id_page(JobFilter(), limit=1),
    "job_pages.page": lambda: job_pages.page(JobFilter(), limit=1),
    "leases.page": lambda: call("leases", "page", limit=1),
    "claim_requests.claim_requested": lambda: call(
        *("claim_requests", "claim_requested", "w", [ClaimRequest(["q"], 1, 9)]),
        lease_seconds=1.0,
        resume_after="{}",
        tasks="{t}",
    ),
    "protocol.claim": lambda: call(
        *("protocol", "claim", "w", ["q"]),
        batch_size=1,
        lease_seconds=1.0,
        resume_after="{}",
        tasks="{t}",
    ),
    "transactions.begin": lambda: transactions.begin("SERIALIZABLE"),
    "transactions.reset_session": lambda: transactions.reset_session(
        tuple((name, value.strip("'")) for name, value in session_settings.CONTROL.items())
    ),
}


def module(name: str) -> types.ModuleType:
    return importlib.import_module(f"faultline.statements.{name}")


def call(name: str, function: str, *args: Any, **kwargs: Any) -> Statement[Any]:
    made: Statement[Any] = getattr(module(name), function)(*args, **kwargs)
    return made


def makers() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The functions of statements/ that return a statement."""
    for found in pkgutil.iter_modules(faultline.statements.__path__):
        for name, function in vars(module(found.name)).items():
            unwrapped = inspect.unwrap(function)
            if (
                inspect.isfunction(unwrapped)
                and unwrapped.__module__ == module(found.name).__name__
                and not name.startswith("_")
                and str(unwrapped.__annotations__.get("return")).startswith("Statement[")
            ):
                yield f"{found.name}.{name}", function


def example(kind: Any) -> Any:
    """A value of this type; of a union, of its first type."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    if kind is LapsedHolder:
        return LapsedHolder(**{name: example(each) for name, each in hints(LapsedHolder).items()})
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return example(inner[0])
    if origin is Statement:
        return EXAMPLES[Statement]
    if origin is not None and issubclass(origin, Mapping):
        return {}
    if origin is not None and issubclass(origin, Sequence | typing.Iterable):
        return [example(inner[0])]
    return EXAMPLES[kind]


def hints(of: Any) -> dict[str, Any]:
    found = typing.get_type_hints(of)
    found.pop("return", None)
    return found


MAKERS = dict(makers())


@pytest.mark.parametrize("name", MAKERS)
def test_postgresql_accepts_the_statement(conn: Connection, name: str) -> None:
    if name in SPECIAL:
        statement = SPECIAL[name]()
    else:
        arguments = {each: example(kind) for each, kind in hints(MAKERS[name]).items()}
        positional = [
            arguments.pop(parameter.name)
            for parameter in inspect.signature(MAKERS[name]).parameters.values()
            if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
        ]
        statement = MAKERS[name](*positional, **arguments)

    sql = statement.sql.strip()
    if sql.startswith(EXPLAINED):
        # EXPLAIN parses and plans, as PREPARE does.
        conn.execute(f"EXPLAIN {sql}".encode(), statement.params)
    else:
        conn.execute(sql.encode(), statement.params)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_no_statement_is_put_together_from_fragments(path: Path) -> None:
    """One literal per statement, so that it can be copied into psql."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    words = [each for each in tokens if each.type not in (tokenize.NL, tokenize.COMMENT)]
    fragments = [
        first.start[0]
        for first, second in pairwise(words)
        if first.type == second.type == tokenize.STRING and VERB.match(first.string)
    ]
    assert fragments == []


def test_the_probe_of_a_new_session_is_accepted(conn: Connection) -> None:
    conn.execute(f"EXPLAIN {session_settings.PROBE}".encode())


def test_every_module_of_statements_is_checked() -> None:
    assert len(MAKERS) >= 90
    assert set(SPECIAL) <= set(MAKERS)
