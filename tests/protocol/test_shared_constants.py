"""Constants that SQL and Python both define: each listed pair must be equal.

SQL cannot import from Python, and Python checks most limits before it sends anything, so that users get
an error without a round trip. A pair that is not listed here may drift apart.
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from faultline import RetryPolicy, payload
from faultline.config import (
    LONGEST_LEASE_SECONDS,
    LONGEST_RETRY_SECONDS,
    SHORTEST_RETENTION_DAYS,
    WorkerSettings,
)
from faultline.enqueueing import MAX_BATCH
from faultline.handler_errors import _MAX_ERROR_LENGTH
from faultline.metrics.catalogue import FAILED_REASONS, LOSS_CAUSES, OTHER
from faultline.model import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    CommitOutcome,
    JobState,
    Renewal,
    StaleReason,
)
from faultline.postgres import errors as driver_errors
from faultline.postgres.migrate import OWNER, TRIGGERS, functions_sql
from faultline.statements import (
    audit,
    epochs,
    keys,
    protocol,
    queues,
    retention,
    server,
    workers,
)
from faultline.statements.invariants import INVARIANTS
from faultline.tracing import trace_context
from faultline.workers import claiming, heartbeat, stacks, unknown_tasks

from .steps import Connection, refused, rows, value

ROOT = Path(__file__).parents[2]
SQL = functions_sql()


def file(name: str) -> str:
    return resources.files("faultline.sql").joinpath(name).read_text()


def body(function: str) -> str:
    """The text of one function, from its name to its end."""
    found = re.search(rf"FUNCTION faultline\.{function}\(.*?\$\$(.*?)\$\$;", SQL, re.DOTALL)
    assert found is not None, function
    return found[1]


def default(conn: Connection, function: str, argument: str) -> Any:
    """The value that the function takes when this argument is left out."""
    expression = value(
        conn,
        "SELECT pg_get_function_arg_default(p.oid, array_position(p.proargnames, %s::text))"
        " FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace"
        " WHERE n.nspname = 'faultline' AND p.proname = %s",
        *(argument, function),
    )
    return value(conn, f"SELECT {expression}")


def column_default(conn: Connection, table: str, column: str) -> Any:
    expression = value(
        conn,
        "SELECT column_default FROM information_schema.columns WHERE table_schema = 'faultline'"
        " AND table_name = %s AND column_name = %s",
        *(table, column),
    )
    return value(conn, f"SELECT {expression}")


def constraint(conn: Connection, name: str) -> str:
    return str(
        value(
            conn,
            "SELECT string_agg(pg_get_constraintdef(oid), ' ') FROM pg_constraint"
            " WHERE connamespace = 'faultline'::regnamespace AND conname = %s",
            name,
        )
    )


# ── Defaults ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("argument", "constant"),
    [
        ("queue", DEFAULT_QUEUE),
        ("priority", DEFAULT_PRIORITY),
        ("max_attempts", DEFAULT_MAX_ATTEMPTS),
    ],
)
def test_a_job_has_the_same_defaults_from_python_from_sql_and_in_the_table(
    conn: Connection, argument: str, constant: Any
) -> None:
    assert default(conn, "enqueue", argument) == constant
    assert default(conn, "enqueue_many", argument) == constant
    assert column_default(conn, "jobs", argument) == constant


@pytest.mark.parametrize("function", ["claim", "heartbeat"])
def test_the_default_lease_is_the_same(conn: Connection, function: str) -> None:
    assert default(conn, function, "lease").total_seconds() == WorkerSettings().lease_seconds


def test_other_defaults_are_the_same(conn: Connection) -> None:
    for function in ("purge_jobs", "purge_ledger", "purge_audit"):
        assert default(conn, function, "batch_size") == retention.BATCH_SIZE
    assert default(conn, "queues", "exact_up_to") == queues.EXACT_UP_TO
    deferral = default(conn, "defer_many", "retry_in").total_seconds()
    assert deferral == unknown_tasks.FIRST_DELAY_SECONDS


# ── Limits ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("function", "longest"),
    [("checked_lease", LONGEST_LEASE_SECONDS), ("checked_delay", LONGEST_RETRY_SECONDS)],
)
def test_the_longest_lease_and_retry_delay_are_the_same(
    conn: Connection, function: str, longest: int
) -> None:
    query = f"SELECT faultline.{function}(make_interval(secs => %s))"
    value(conn, query, longest)
    with refused("FL005"):
        value(conn, query, longest + 1)
    assert RetryPolicy(base_seconds=longest, cap_seconds=longest).cap_seconds == longest


def test_the_shortest_retention_is_the_same(conn: Connection) -> None:
    query = "SELECT faultline.removed_before(make_interval(secs => %s), 1)"
    seconds = SHORTEST_RETENTION_DAYS * 86_400
    value(conn, query, seconds)
    with refused("FL005"):
        value(conn, query, seconds - 1)


def test_workers_send_no_larger_batches_than_sql_takes(conn: Connection) -> None:
    query = "SELECT count(*) FROM faultline.claim('w', batch_size => %s)"
    assert claiming._BATCH_SIZE <= MAX_BATCH
    value(conn, query, MAX_BATCH)
    with refused("FL005"):
        value(conn, query, MAX_BATCH + 1)
    value(conn, "SELECT faultline.removed_before('1 day', %s)", MAX_BATCH)
    with refused("FL005"):
        value(conn, "SELECT faultline.removed_before('1 day', %s)", MAX_BATCH + 1)
    assert heartbeat._BATCH <= MAX_BATCH


@pytest.mark.parametrize(
    ("domain", "pattern"),
    [("task_name", payload._TASK_NAME), ("queue_name", payload._QUEUE_NAME)],
)
def test_names_have_the_same_pattern(
    conn: Connection, domain: str, pattern: re.Pattern[str]
) -> None:
    written = constraint(
        conn, {"task_name": "task_is_a_name", "queue_name": "queue_is_a_name"}[domain]
    )
    assert f"'^{pattern.pattern.removesuffix(chr(92) + 'Z')}$'" in written


def test_keys_payloads_and_results_have_the_same_limits(conn: Connection) -> None:
    key = constraint(conn, "idempotency_key_is_1_to_255_characters")
    assert f"<= {payload.MAX_KEY_LENGTH})" in key
    limit = str(payload.MAX_TEXT_BYTES)
    assert limit in constraint(conn, "payload_is_at_most_8_mib")
    assert limit in constraint(conn, "result_is_at_most_8_mib")
    assert f"> {limit} THEN" in body("refuse_oversized_result")
    (stored,) = [each for each in INVARIANTS if each.name == "stored_texts_are_within_limits"]
    assert stored.query.count(f"> {limit} END") == 2


@pytest.mark.parametrize("priority", range(-1, 11))
def test_priorities_have_the_same_range(conn: Connection, priority: int) -> None:
    in_sql = value(conn, "SELECT %s BETWEEN 0 AND 9", priority)
    assert "(priority >= 0) AND (priority <= 9)" in constraint(conn, "priority_is_0_to_9")
    assert "generate_series(0, 9)" in body("all_lanes")
    try:
        payload.check_priority(priority)
    except payload.InvalidInput:
        assert not in_sql
    else:
        assert in_sql


@pytest.mark.parametrize("attempts", [0, 1, 1000, 1001])
def test_max_attempts_has_the_same_range(conn: Connection, attempts: int) -> None:
    written = constraint(conn, "max_attempts_is_1_to_1000")
    low, high = (int(number) for number in re.findall(r"\d+", written))
    try:
        payload.check_max_attempts(attempts)
    except payload.InvalidInput:
        assert not low <= attempts <= high
    else:
        assert low <= attempts <= high


def test_verify_looks_for_texts_beyond_the_limits_of_the_tables(conn: Connection) -> None:
    (stored,) = [each for each in INVARIANTS if each.name == "stored_texts_are_within_limits"]
    looked_for = set(re.findall(r"octet_length\((\w+)\) > (\d+)", stored.query))
    enforced = set(
        re.findall(r"octet_length\((\w+)\) <= (\d+)", constraint(conn, "texts_are_within_limits"))
    )
    assert looked_for <= enforced
    assert f"octet_length(text) > {dict(enforced)['last_error']}" in server.oversized(oldest=1).sql
    assert f"> {payload.MAX_TEXT_BYTES} END" in server.oversized(oldest=1).sql


def test_texts_that_python_sends_fit_into_their_columns(conn: Connection) -> None:
    assert f"left(fail.error, {_MAX_ERROR_LENGTH})" in body("fail")
    assert int(re.findall(r"left\(stack, (\d+)\)", SQL)[0]) >= stacks._STACK_LENGTH
    assert f"<= {keys.MAX_NAME_LENGTH})" in constraint(conn, "key_name_is_1_to_100_characters")
    longest = int(
        re.findall(r"<= (\d+)", constraint(conn, "trace_context_is_at_most_1000_characters"))[0]
    )
    traceparent = "00-" + "0" * 32 + "-" + "0" * 16 + "-01"
    assert len(traceparent) + 1 + trace_context.MAX_STATE_LENGTH <= longest


# ── Words ────────────────────────────────────────────────────────────────────────────────────────


def words(text: str) -> set[str]:
    return set(re.findall(r"'(\w+)'", text))


def test_states_are_the_same(conn: Connection) -> None:
    assert words(constraint(conn, "state_is_known")) == {state.value for state in JobState}


def test_reasons_of_a_refusal_are_the_same() -> None:
    in_sql = set(re.findall(r"THEN '(\w+)'", body("fence_violation")))
    in_sql |= set(re.findall(r"faultline\.refuse_stale\('(\w+)'", SQL))
    assert in_sql == {reason.value for reason in StaleReason}


def test_outcomes_of_heartbeats_and_batches_are_the_same() -> None:
    heartbeat_outcomes = set(re.findall(r"(?:THEN|ELSE|uuid,) '(\w+)'", body("heartbeat")))
    assert heartbeat_outcomes == {each.value for each in Renewal} | {protocol.DRAIN}
    commit_outcomes = {"committed", "already_yours", "locked", "stale"}
    assert commit_outcomes <= words(body("commit_many"))
    assert commit_outcomes == {each.value for each in CommitOutcome}


def test_reasons_of_failed_jobs_have_a_metric_label() -> None:
    in_sql = {"poison", "cancelled", "attempts_spent", "token_spent", "unreadable", "expired"}
    for reason in in_sql:
        assert f"'{reason}'" in SQL
    assert in_sql <= set(FAILED_REASONS)
    assert {"rejected", "gave_up", OTHER} == set(FAILED_REASONS) - in_sql
    causes = re.findall(r"THEN '(\w+)' ELSE '(\w+)' END AS cause", body("reconcile"))
    assert [set(LOSS_CAUSES)] == [set(pair) for pair in causes]


def test_standings_are_the_same(conn: Connection) -> None:
    conn.execute("SELECT faultline.enqueue('t')")
    found = [standing for (standing,) in rows(conn, "SELECT standing FROM faultline.queues()")]
    assert found == [standing.value for standing in queues.CountedState]


def test_scopes_and_roles_are_the_same(conn: Connection) -> None:
    scopes = words(constraint(conn, "key_scopes_are_known"))
    assert scopes == {scope.value for scope in keys.Scope}
    created = set(re.findall(r"'(faultline_\w+)'", file("roles.sql").partition("LOOP")[0]))
    assert created == {OWNER, *server.ROLES}


# ── Codes, locks, settings, channels ─────────────────────────────────────────────────────────────


def test_every_sqlstate_has_its_exception_and_its_line_in_the_docs() -> None:
    raised = set(re.findall(r"'(FL\d{3})'", SQL))
    translated = set(re.findall(r'case "(FL\d{3})"', Path(driver_errors.__file__).read_text()))
    documented = set(
        re.findall(r"^\| `(FL\d{3})` ", (ROOT / "docs/protocol.md").read_text(), re.MULTILINE)
    )
    assert raised == translated == documented
    assert len(raised) == 12


def test_every_reason_of_a_refusal_is_in_the_docs() -> None:
    documented = re.findall(r"^\| `(\w+)` ", (ROOT / "docs/protocol.md").read_text(), re.MULTILINE)
    assert {reason.value for reason in StaleReason} <= set(documented)


def test_epochs_and_counters_have_the_same_bits() -> None:
    assert f"faultline.current_epoch() << {epochs.COUNTER_BITS};" in body("claim")
    largest_counter = (1 << epochs.COUNTER_BITS) - 1
    masks = set(re.findall(r"fencing_token & (\d+)\)? = (\d+)", SQL))
    assert masks == {(str(largest_counter), str(largest_counter))}
    assert f"2^{epochs.COUNTER_BITS} " in file("epoch.sql")
    shifts = [number for each in INVARIANTS for number in re.findall(r">> (\d+)", each.query)]
    assert set(shifts) == {str(epochs.COUNTER_BITS)}


def test_the_advisory_locks_of_workers_have_the_same_class() -> None:
    in_sql = re.findall(r"(?:lock_shared\(|classid = )(\d+)", SQL)
    assert len(in_sql) == 3
    assert set(in_sql) == {str(workers.LOCK_CLASS)}


def test_sessions_that_hold_a_worker_lock_have_the_same_network_timeout() -> None:
    setting = r"set_config\('tcp_user_timeout', '(\d+)', false\)"
    (in_sql,) = re.findall(setting, SQL)
    assert re.findall(setting, workers.hold_worker_lock(1).sql) == [in_sql]
    assert int(in_sql) / 1000 > WorkerSettings().lease_seconds


def test_notifications_use_the_same_channel() -> None:
    assert f"pg_notify('{protocol.CHANNEL}', payload)" in body("broadcast")


def test_the_actor_of_retention_is_the_same() -> None:
    assert f"<> '{retention.RETENTION}'" in body("audit_purge")
    assert f"current_setting('{audit.ACTOR_SETTING}', true)" in body("write_audit")


def test_the_triggers_that_are_checked_are_those_that_refuse_a_stale_write(
    conn: Connection,
) -> None:
    there = rows(
        conn,
        "SELECT c.relname, t.tgname FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid"
        " WHERE c.relnamespace = 'faultline'::regnamespace AND NOT t.tgisinternal"
        " AND c.relname NOT IN ('audit_log', 'schedule_firings')"
        " AND t.tgname NOT IN ('bound_result', 'notify_waiters', 'free_places',"
        " 'wake_at_commit')",
    )
    assert set(TRIGGERS) == set(there)
    (fence,) = [each for each in INVARIANTS if each.name == "the_fence_is_up"]
    expected = fence.query.partition(" AS expected")[0]
    assert set(re.findall(r"\('(\w+)', '(\w+)'\)", expected)) == set(TRIGGERS)


# ── Signatures ───────────────────────────────────────────────────────────────────────────────────

SIGNATURE = re.compile(r"\*\*`(\w+)\((.*?)\)(?: →|`\*\*)", re.DOTALL)
TYPES = {
    "int": "integer",
    "float": "double precision",
    "timestamptz": "timestamp with time zone",
}


def documented_arguments(text: str) -> list[tuple[str, str, str | None]]:
    """The name, type and default of each argument."""
    found = []
    for argument in filter(None, re.split(r",\s*", " ".join(text.split()))):
        declared, _, given = argument.partition(" = ")
        name, _, kind = declared.partition(" ")
        found.append((name, TYPES.get(kind, kind), given or None))
    return found


def arguments_of(conn: Connection, function: str) -> list[tuple[str, str, str | None]]:
    return rows(
        conn,
        "SELECT p.proargnames[n], format_type(p.proargtypes[n - 1], NULL),"
        " pg_get_function_arg_default(p.oid, n::integer)"
        " FROM pg_proc AS p, generate_series(1, p.pronargs) AS n"
        " WHERE p.proname = %s AND p.pronamespace = 'faultline'::regnamespace ORDER BY n",
        function,
    )


SIGNATURES = SIGNATURE.findall((ROOT / "docs/protocol.md").read_text())


@pytest.mark.parametrize(("function", "text"), SIGNATURES, ids=[name for name, _ in SIGNATURES])
def test_the_signature_in_the_docs_is_that_of_the_function(
    conn: Connection, function: str, text: str
) -> None:
    documented, actual = documented_arguments(text), arguments_of(conn, function)
    assert [each[:2] for each in documented] == [each[:2] for each in actual]
    for (name, kind, documented_default), (_, _, given) in zip(documented, actual, strict=True):
        assert (documented_default is None) == (given is None), name
        if documented_default is not None:
            same = f"SELECT ({documented_default})::{kind} IS NOT DISTINCT FROM ({given})"
            assert value(conn, same), name
