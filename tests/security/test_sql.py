"""No SQL is built from input: values are parameters, never text of a query.

The test finds each place of the source that composes a query; it inserts only constants of the source.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import faultline
from faultline.job_edits import encode_changes
from faultline.model import JobState
from faultline.statements import (
    job_pages,
    jobs,
    keys,
    lost_attempts,
    many_jobs,
    protocol,
    queues,
    schedules,
    server,
    workers,
)
from faultline.statements.job_filter import JobFilter
from faultline.statements.keys import NewKey, Scope

PACKAGE = Path(faultline.__file__).parent
# For tests only, with databases of their own on the developer's machine.
NOT_SERVED = ("testing",)
TAKES_SQL = {"execute", "executemany", "copy", "stream", "Statement", "SQL"}
OUR_CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*\Z")

# What is put into a query and is not a constant, and where it comes from.
REVIEWED = {
    ("api/session_pool.py", "milliseconds * _LOCK_SHARE"): "a number, formatted as one",
    ("api/session_pool.py", "milliseconds * _STATEMENT_SHARE"): "a number, formatted as one",
    ("statements/job_pages.py", "seen"): "of literals in that file and in job_filter.py",
    ("statements/job_pages.py", "order.last_moment"): "of literals in that file",
    ("limit_methods.py", "limits.uses()"): "a Statement of limits.py",
    ("job_selection.py", "sweep.page"): "a Statement of job_pages.py",
    ("statements/jobs.py", "test"): "of literals in job_filter.py",
    ("postgres/migrate.py", "int(lock_timeout_seconds * 1000)"): "a number",
    ("postgres/migrate.py", "_fingerprint()"): "hexadecimal digits of a hash",
    ("postgres/one_message.py", "message"): "Statements, and the handler's own by the driver",
    ("commit_message.py", "write.statement"): "the handler's own, passed on to the driver",
    ("fenced_block.py", "self"): "not SQL: the copy of a block",
    ("postgres/handler_connection.py", "query"): "the handler's own, passed on to the driver",
    ("app.py", "_refused(action, target, error)"): "a Statement of audit_log.py",
    ("statements/transactions.py", "names"): "of session_settings.py: literals, and typed as such",
    ("statements/transactions.py", "values"): "the same",
    (
        "statements/transactions.py",
        "level",
    ): "the name of one of the driver's IsolationLevel, in fenced_block.py",
    ("statements/invariants.py", "invariant.query"): "of INVARIANTS in that file",
    ("job_edits.py", "read.sql"): "of the Statement of edits_of, a literal",
    ("statements/protocol.py", "many.sql"): "of the Statement for many jobs, a literal",
    ("postgres/listening.py", "channel"): "typed as a literal; the caller has one",
    ("result_waiters.py", "outcomes_of([job_id])"): "a Statement of outcomes.py",
}
# Dynamic SQL inside the database: identifiers by %I or quote_ident, values by %L.
DYNAMIC_SQL = {
    "handler_transactions.sql": 1,
    "roles.sql": 4,
    "counts.sql": 1,
    "notifications.sql": 1,
}

HOSTILE = "x'; DROP TABLE faultline.jobs; --"
HOSTILE_FILTER = JobFilter(queue=HOSTILE, task=HOSTILE, failed_reason=HOSTILE, error=HOSTILE)


def built_in() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name.split("/")[0] in NOT_SERVED:
            continue
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and call.args and _name(call.func) in TAKES_SQL:
                for part in _put_in(call.args[0]):
                    yield name, part


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _put_in(query: ast.expr) -> Iterator[str]:
    """The expressions that a query is composed of, without its literals."""
    match query:
        case ast.Constant():
            return
        case ast.JoinedStr():
            for value in query.values:
                if isinstance(value, ast.FormattedValue):
                    yield from _put_in(value.value)
        case ast.BinOp(op=ast.Add() | ast.Mod()) if _is_text(query):
            yield from _put_in(query.left)
            yield from _put_in(query.right)
        case ast.Call() if _name(query.func) == "format":
            yield ast.unparse(query)
        case _:
            yield ast.unparse(query)


def _is_text(query: ast.BinOp) -> bool:
    return any(isinstance(side, ast.Constant | ast.JoinedStr) for side in (query.left, query.right))


# A query as a whole from elsewhere in the package: a value made by Statement, a file of ours.
WHOLE = re.compile(
    r"(statement|statement\.sql|session\.settings|begin|migration\.sql|\*together\(statements\)"
    r"|(functions|roles|grants)_sql\(\)|(protocol|queues|jobs|workers|audit|schedules)\.\w+\(.*\))\Z"
)


def test_every_query_is_composed_of_constants() -> None:
    found = set(built_in())

    suspicious = {
        (where, part)
        for where, part in found
        if not OUR_CONSTANT.match(part) and not WHOLE.match(part) and (where, part) not in REVIEWED
    }
    assert suspicious == set()
    assert set(REVIEWED) <= found, "a reviewed place is gone: take it from the list"


def test_dynamic_sql_in_the_database_is_where_it_was_reviewed() -> None:
    statement = re.compile(r"^\s*(?:RETURN QUERY )?EXECUTE (?!FUNCTION|ON )", re.MULTILINE)
    found = {
        path.name: len(statement.findall(path.read_text()))
        for path in (PACKAGE / "sql").rglob("*.sql")
    }

    assert {name: count for name, count in found.items() if count} == DYNAMIC_SQL


_ID = UUID(int=1)
STATEMENTS: dict[str, Any] = {
    "enqueue": lambda: protocol.enqueue(
        *(HOSTILE, {HOSTILE: HOSTILE}), queue=HOSTILE, priority=5, max_attempts=1
    ),
    "claim": lambda: protocol.claim(HOSTILE, [HOSTILE], batch_size=1, lease_seconds=1),
    "leases_of": lambda: protocol.leases_of(HOSTILE),
    "cancel": lambda: protocol.cancel(_ID, HOSTILE),
    "add schedule": lambda: schedules.add({"name": HOSTILE, "task": HOSTILE}),
    "pause schedule": lambda: schedules.pause(HOSTILE, HOSTILE),
    "find schedule": lambda: schedules.find(HOSTILE),
    "request_drain": lambda: workers.request_drain([HOSTILE]),
    "pause": lambda: queues.pause("queue", HOSTILE),
    "page of JSON": lambda: jobs.job_json_page(HOSTILE_FILTER, limit=1, scan=1),
    "job pages": lambda: job_pages.page(HOSTILE_FILTER, limit=1),
    "pages of ids": lambda: job_pages.id_page(
        replace(HOSTILE_FILTER, state=JobState.FAILED), limit=1
    ),
    "retry many": lambda: many_jobs.retry_many([_ID], HOSTILE_FILTER),
    "cancel many": lambda: many_jobs.cancel_many([_ID], HOSTILE_FILTER, HOSTILE),
    "delete many": lambda: many_jobs.delete_many([_ID], HOSTILE_FILTER),
    "edit many": lambda: many_jobs.edit_many(
        [_ID], encode_changes({HOSTILE: HOSTILE}), HOSTILE_FILTER
    ),
    "edits of": lambda: many_jobs.edits_of(
        [_ID], encode_changes({HOSTILE: HOSTILE}), tasks=[HOSTILE]
    ),
    "edit": lambda: protocol.edit_payload(_ID, {HOSTILE: HOSTILE}),
    "keys": lambda: keys.create(HOSTILE, NewKey(HOSTILE, HOSTILE, b""), [Scope.READ]),
    "found key": lambda: keys.find(HOSTILE),
    "key by name": lambda: keys.id_of(HOSTILE),
    "settings": lambda: server.settings([HOSTILE]),
    "lost attempts": lambda: lost_attempts.lost_since(1),
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_input_is_sent_as_a_parameter(statement: Any) -> None:
    made = statement()

    assert HOSTILE not in made.sql
    assert made.sql.count("%s") == len(made.params)
