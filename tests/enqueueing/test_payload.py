"""A payload is stored without loss, or refused early with a helpful error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from faultline import payload
from faultline.errors import InvalidInput, PayloadTooLarge
from faultline.postgres.sessions import run
from faultline.statements import jobs, protocol

Conn = psycopg.Connection[Any]


def test_a_payload_is_refused_by_the_size_of_its_text_in_the_database(conn: Conn) -> None:
    with pytest.raises(PayloadTooLarge) as raised:
        payload.encode_payload({"a": [1e308] * 145_000})
    assert raised.value.message == (
        "payload is 45,095,007 bytes as PostgreSQL writes it; the limit is 8,388,608"
    )

    count = (payload.MAX_TEXT_BYTES - len('{"a": []}') + len(", ")) // len(f"{10**308}, ")
    stored = there_and_back(conn, {"a": [1e308] * count})
    assert stored == {"a": [10**308] * count}
    with pytest.raises(PayloadTooLarge):
        payload.encode_payload({"a": [1e308] * (count + 1)})
    with pytest.raises(psycopg.errors.CheckViolation, match="payload_is_at_most_8_mib"):
        conn.execute(
            "SELECT faultline.enqueue('t', %s::jsonb)",
            [f'{{"a": [{", ".join(["1e308"] * (count + 1))}]}}'],
        )


HOSTILE_NAMES = ["", " ", "a b", "a\n", "\na", "a\x00", "é", "\uff41", "\ud800", "-a", ".a", "a/b"]


@pytest.mark.parametrize("check", [payload.check_task_name, payload.check_queue_name])
@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "a$b", "%s", "'; DROP TABLE jobs; --", "a" * 201])
def test_a_hostile_name_is_refused_with_the_rule(check: Callable[[str], str], name: str) -> None:
    with pytest.raises(InvalidInput, match=r"is not a (task|queue) name") as raised:
        check(name)

    assert "letters, digits, _ . : -" in (raised.value.hint or "")
    assert len(raised.value.message) < 200


@pytest.mark.parametrize("name", ["a" * 200, "_a", "billing.charge:v2-beta"])
def test_the_database_takes_every_task_name_that_passes(conn: Conn, name: str) -> None:
    conn.execute("SELECT faultline.enqueue(%s)", [payload.check_task_name(name)])


@pytest.mark.parametrize("name", ["a" * 63, "0", "_a", "eu-west.1:bulk"])
def test_the_database_takes_every_queue_name_that_passes(conn: Conn, name: str) -> None:
    conn.execute("SELECT faultline.enqueue('task', queue => %s)", [payload.check_queue_name(name)])


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "has 0 characters, but must have 1 to 255"),
        ("k" * 256, "has 256 characters, but must have 1 to 255"),
        ("a\x00b", "contains a NUL character"),
        ("\ud800", "contains a lone surrogate"),
    ],
)
def test_a_bad_idempotency_key_is_refused(key: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        payload.check_idempotency_key(key)


@pytest.mark.parametrize("key", ["k", "é" * 255, "\U0001f600" * 255], ids=["1", "bmp", "astral"])
def test_the_database_takes_every_key_that_passes(conn: Conn, key: str) -> None:
    conn.execute(
        "SELECT faultline.enqueue('task', idempotency_key => %s)",
        [payload.check_idempotency_key(key)],
    )


@pytest.mark.parametrize("priority", [-1, 10])
def test_a_priority_outside_0_to_9_is_refused(priority: int) -> None:
    with pytest.raises(InvalidInput, match="priority must be 0"):
        payload.check_priority(priority)


@pytest.mark.parametrize("max_attempts", [0, 1001])
def test_max_attempts_outside_1_to_1000_are_refused(max_attempts: int) -> None:
    with pytest.raises(InvalidInput, match="max_attempts must be 1"):
        payload.check_max_attempts(max_attempts)


# ── there and back ───────────────────────────────────────────────────────────────────────────────

TEXT = st.text(st.characters())  # NUL and lone surrogates too
NUMBERS = st.integers(-(2**65), 2**65) | st.floats(-1e15, 1e15) | st.just(float("nan"))
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)


def there_and_back(conn: Conn, value: dict[str, Any]) -> Any:
    made = run(conn, protocol.enqueue("task", value, queue="default", priority=5, max_attempts=5))
    job = run(conn, jobs.get_job(made.job_id))
    assert job is not None
    return job.payload


@settings(
    max_examples=100,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(value=st.dictionaries(TEXT, VALUES, max_size=5))
def test_an_accepted_payload_is_stored_without_change(conn: Conn, value: dict[str, Any]) -> None:
    try:
        payload.encode_payload(value)
    except InvalidInput:
        return

    assert there_and_back(conn, value) == value


def test_a_float_beyond_10_to_the_16_comes_back_as_the_integer_that_is_that_float(
    conn: Conn,
) -> None:
    value = 1.2345678901234567e18  # jsonb writes it out with all its decimal digits

    returned = there_and_back(conn, {"a": value})["a"]

    assert isinstance(returned, int)
    assert float(returned) == value


@pytest.mark.slow
def test_every_payload_within_the_limit_fits_into_the_table(conn: Conn) -> None:
    value = {"a": [1] * 500_000}
    payload.encode_payload(value)

    assert there_and_back(conn, value) == value


# jsonb knows no negative zero, and writes it without the sign
FLOATS = st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0)


@settings(
    max_examples=100,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(value=st.dictionaries(TEXT, st.lists(FLOATS)))
def test_the_size_of_the_text_is_known_before_it_is_sent(conn: Conn, value: dict[str, Any]) -> None:
    try:
        encoded = payload.encode_payload(value)
    except InvalidInput:
        return

    row = conn.execute("SELECT octet_length(%s::jsonb::text)", [encoded]).fetchone()
    assert row == (len(encoded.encode()) + payload._extra_in_text(value),)
