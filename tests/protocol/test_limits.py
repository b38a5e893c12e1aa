"""Every value that a client can store is limited by the length of its text."""

from __future__ import annotations

import json
import re
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from .steps import Connection, claim_new, rows, value

LIMIT = 8 * 1024 * 1024
# Numbers whose texts are long, as JSON: by their exponent, by their scale, and by both.
LONG_NUMBERS = ("1e131000", "-1e131000", "1e-16380", "0e-16383", "1e308", "-2.5e-300", "12e20")


def text_bound(conn: Connection, text: str) -> int:
    return int(value(conn, "SELECT faultline.json_text_bound(%s::jsonb)", text))


@pytest.mark.parametrize("number", LONG_NUMBERS)
def test_a_payload_is_refused_by_the_size_of_its_text_however_few_bytes_it_takes(
    conn: Connection, number: str
) -> None:
    length = len(value(conn, "SELECT %s::jsonb::text", number))
    fits, too_many = LIMIT // (length + 2) - 1, LIMIT // (length + 2) + 2
    for count in (fits, too_many):
        payload = f'{{"a": [{", ".join([number] * count)}]}}'
        stored = value(conn, "SELECT pg_column_size(%s::jsonb)", payload)
        if stored > LIMIT:
            continue
        if count == fits:
            conn.execute("SELECT faultline.enqueue('send_mail', %s::jsonb)", [payload])
        else:
            with pytest.raises(psycopg.errors.CheckViolation) as refusal:
                conn.execute("SELECT faultline.enqueue('send_mail', %s::jsonb)", [payload])
            assert refusal.value.diag.constraint_name == "payload_is_at_most_8_mib"


def test_a_text_that_postgresql_could_not_build_is_refused_without_building_it(
    conn: Connection,
) -> None:
    payload = f'{{"a": [{", ".join(["1e131000"] * 9000)}]}}'
    with pytest.raises(psycopg.errors.CheckViolation, match="payload_is_at_most_8_mib"):
        conn.execute("SELECT faultline.enqueue('send_mail', %s::jsonb)", [payload])


def test_a_payload_that_is_compressed_in_a_table_counts_with_its_full_size(
    conn: Connection,
) -> None:
    conn.execute("CREATE TABLE outbox (payload jsonb)")
    conn.execute("INSERT INTO outbox VALUES (%s)", [Jsonb({"blob": "x" * (LIMIT + 1)})])
    assert value(conn, "SELECT pg_column_size(payload) FROM outbox") < LIMIT
    with pytest.raises(psycopg.errors.CheckViolation, match="payload_is_at_most_8_mib"):
        conn.execute("SELECT faultline.enqueue('send_mail', payload) FROM outbox")


numbers = st.one_of(
    st.integers(),
    st.builds("{}e{}".format, st.integers(-99, 99), st.integers(-3000, 3000)),
)
values = st.recursive(
    st.one_of(numbers, st.text(st.characters(exclude_characters="\0", codec="utf-8"))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("äb\n"), inner, max_size=4),
)


def as_json(item: Any) -> str:
    match item:
        case list():
            return f"[{', '.join(map(as_json, item))}]"
        case dict():
            return f"{{{', '.join(f'{json.dumps(k)}: {as_json(v)}' for k, v in item.items())}}}"
        case str() if re.fullmatch(r"-?\d+e-?\d+", item):
            return item
    return json.dumps(item, ensure_ascii=False)


@given(item=values)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_bound_is_the_length_of_the_text_where_that_is_safe_to_build(
    conn: Connection, item: Any
) -> None:
    text = as_json(item)
    [(length,)] = rows(conn, "SELECT octet_length(%s::jsonb::text)", text)
    assert text_bound(conn, text) == length


def test_the_bound_computed_from_the_numbers_is_never_below_the_length_of_the_text(
    conn: Connection,
) -> None:
    """Above 5 KB the numbers are measured first; with few numbers the bound is exact."""
    for number in LONG_NUMBERS:
        text = f'["{"ä" * 6000}", {number}, [{number}, {{"k": {number}}}]]'
        assert text_bound(conn, text) == value(conn, "SELECT octet_length(%s::jsonb::text)", text)


# 100 numbers are 13 MB of text; 9000 are more than PostgreSQL can build.
@pytest.mark.parametrize("numbers", [100, 9000])
@pytest.mark.parametrize(
    "call",
    [
        "SELECT faultline.commit(%s, %s, %s, %s::jsonb)",
        "SELECT faultline.commit_many(ARRAY[%s], ARRAY[%s], ARRAY[%s], ARRAY[%s::jsonb])",
    ],
)
def test_a_result_is_refused_by_the_size_of_its_text_without_building_it(
    conn: Connection, call: str, numbers: int
) -> None:
    lease = claim_new(conn)
    result = f"[{', '.join(['1e131000'] * numbers)}]"
    with pytest.raises(psycopg.errors.CheckViolation) as refusal:
        conn.execute(call.encode(), [*lease, result])
    assert refusal.value.diag.constraint_name == "result_is_at_most_8_mib"
    assert refusal.value.diag.message_detail is None  # it would show the row
