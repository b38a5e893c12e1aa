"""faultline.enqueue and enqueue_many: one job per key, and no row for bad input."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import RFC_4122

import psycopg
import pytest

from faultline.model import DEFAULT_MAX_ATTEMPTS

from .steps import (
    Connect,
    Connection,
    all_at_once,
    claim_batch,
    enqueue,
    enqueue_many,
    enqueue_one_for_each_key,
    job,
    make_due,
    never_waits,
    refused,
    rows,
    start_and_wait_until_blocked,
    value,
)

LATER = datetime(2999, 1, 1, tzinfo=UTC)


def count(conn: Connection) -> int:
    return int(value(conn, "SELECT count(*) FROM faultline.jobs"))


def test_a_new_job_is_queued_under_a_time_ordered_id(conn: Connection) -> None:
    job_id, existing = enqueue(conn, payload={"to": "ada"})
    stored = job(conn, job_id)
    assert (job_id.version, existing) == (7, False)
    assert (stored["state"], stored["fencing_token"], stored["attempts"]) == ("queued", 0, 0)
    assert stored["payload"] == {"to": "ada"}


def test_ids_of_many_jobs_have_the_layout_of_version_7_and_are_unique(conn: Connection) -> None:
    [(began,)] = rows(conn, "SELECT clock_timestamp()")
    for _ in range(2):  # the second call is about to run in the same millisecond
        enqueue_many(conn, [{}] * 500)
    stored = rows(conn, "SELECT id, created_at FROM faultline.jobs ORDER BY created_at")
    ids = [each for each, _ in stored]
    assert {(each.version, each.variant) for each in ids} == {(7, RFC_4122)}
    times = [each.int >> 80 for each in ids]
    assert began.timestamp() * 1000 - 1 <= times[0]
    assert times[-1] <= stored[-1][1].timestamp() * 1000
    assert times == sorted(times)
    assert len({each.int & (2**56 - 1) for each in ids}) == 1000


def test_the_same_key_and_payload_find_the_job_that_exists(conn: Connection) -> None:
    first, _ = enqueue(conn, payload={"to": "ada"}, idempotency_key="mail-1")
    assert enqueue(conn, payload={"to": "ada"}, idempotency_key="mail-1") == (first, True)
    assert count(conn) == 1


def test_jobs_without_a_key_are_never_the_same(conn: Connection) -> None:
    assert enqueue(conn)[0] != enqueue(conn)[0]
    assert count(conn) == 2


def test_payloads_are_compared_as_json_and_not_as_text(conn: Connection) -> None:
    send = "SELECT job_id, existing FROM faultline.enqueue('t', %s, idempotency_key => 'k')"
    [(first, _)] = rows(conn, send, '{"a": 1, "b": 2}')
    assert rows(conn, send, '{"b":2.0,"a":1.0}') == [(first, True)]


def test_a_key_used_for_another_payload_is_refused_and_names_the_job(conn: Connection) -> None:
    first, _ = enqueue(conn, payload={"to": "ada"}, idempotency_key="mail-1")
    with refused("FL004", job_id=str(first)):
        enqueue(conn, payload={"to": "bob"}, idempotency_key="mail-1")


def test_a_key_used_for_another_task_is_refused_and_names_the_job(conn: Connection) -> None:
    first, _ = enqueue(conn, "send_mail", idempotency_key="mail-1")
    with refused("FL004", job_id=str(first)):
        enqueue(conn, "send_letter", idempotency_key="mail-1")


def test_fifty_producers_with_one_key_make_one_job(conn: Connection, connect: Connect) -> None:
    producers = [connect() for _ in range(50)]
    answers = all_at_once(producers, lambda producer: enqueue(producer, idempotency_key="k"))
    assert len({job_id for job_id, _ in answers}) == 1
    assert sorted(existing for _, existing in answers) == [False] + [True] * 49
    assert count(conn) == 1


def test_a_key_can_be_used_again_when_its_first_producer_rolls_back(
    conn: Connection, connect: Connect
) -> None:
    first, second = connect(), connect()
    first.execute("BEGIN")
    enqueue(first, payload={"n": 1}, idempotency_key="k")
    answer = start_and_wait_until_blocked(
        conn, second, lambda c: enqueue(c, payload={"n": 2}, idempotency_key="k")
    )
    first.execute("ROLLBACK")
    job_id, existing = answer.result()
    assert (existing, job(conn, job_id)["payload"]) == (False, {"n": 2})


def test_a_batch_is_answered_in_the_order_of_its_payloads(conn: Connection) -> None:
    payloads = [{"n": n} for n in range(20)]
    keys = [f"key-{n:02}" for n in reversed(range(20))]
    answers = enqueue_many(conn, payloads, idempotency_keys=keys)
    assert [job(conn, job_id)["payload"] for job_id, _ in answers] == payloads


def test_a_batch_without_keys_is_answered_in_the_order_of_its_payloads(conn: Connection) -> None:
    payloads = [{"n": n} for n in range(20)]
    answers = enqueue_many(conn, payloads)
    assert [job(conn, job_id)["payload"] for job_id, _ in answers] == payloads


def test_a_batch_may_repeat_a_key_and_leave_keys_out(conn: Connection) -> None:
    old, _ = enqueue(conn, idempotency_key="old")
    answers = enqueue_one_for_each_key(conn, [None, "new", "old", "new", None])
    ids = [job_id for job_id, _ in answers]
    assert [existing for _, existing in answers] == [False, False, True, True, False]
    assert (ids[2], ids[3]) == (old, ids[1])
    assert len(set(ids)) == count(conn) == 4


def test_an_empty_batch_is_no_jobs_at_all(conn: Connection) -> None:
    assert rows(conn, "SELECT * FROM faultline.enqueue_many('t', '{}')") == []


def test_a_batch_with_too_few_keys_is_refused(conn: Connection) -> None:
    with refused("FL005"):
        enqueue_many(conn, [{}, {}], idempotency_keys=["only one"])
    assert count(conn) == 0


def test_a_conflict_anywhere_in_a_batch_writes_none_of_it(conn: Connection) -> None:
    enqueue(conn, payload={"n": 1}, idempotency_key="taken")
    with refused("FL004"):
        enqueue_many(conn, [{"n": 2}, {"n": 3}], idempotency_keys=["free", "taken"])
    assert count(conn) == 1


def test_two_batches_with_opposite_key_orders_do_not_deadlock(
    conn: Connection, connect: Connect
) -> None:
    gate, forth, back = connect(), connect(), connect()
    gate.execute("BEGIN")
    enqueue_one_for_each_key(gate, ["m"])
    one_way = start_and_wait_until_blocked(
        conn, forth, lambda c: enqueue_one_for_each_key(c, ["a", "m", "z"])
    )
    other_way = start_and_wait_until_blocked(
        conn, back, lambda c: enqueue_one_for_each_key(c, ["z", "m", "a"])
    )
    gate.execute("ROLLBACK")
    assert [job_id for job_id, _ in one_way.result()] == [
        job_id for job_id, _ in reversed(other_way.result())
    ]


def test_a_job_for_later_is_not_claimed_until_it_is_due(conn: Connection) -> None:
    job_id, _ = enqueue(conn, run_at=LATER)
    assert claim_batch(conn) == []
    make_due(conn, job_id)
    assert [lease.job_id for lease in claim_batch(conn)] == [job_id]


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"task": ""}, "task_is_a_name"),
        ({"task": "1st"}, "task_is_a_name"),
        ({"task": "send mail"}, "task_is_a_name"),
        ({"task": "send\n"}, "task_is_a_name"),
        ({"task": "t" * 201}, "task_is_a_name"),
        ({"queue": ""}, "queue_is_a_name"),
        ({"queue": "my queue"}, "queue_is_a_name"),
        ({"queue": "q" * 64}, "queue_is_a_name"),
        ({"priority": -1}, "priority_is_0_to_9"),
        ({"priority": 10}, "priority_is_0_to_9"),
        ({"max_attempts": 0}, "max_attempts_is_1_to_1000"),
        ({"max_attempts": 1001}, "max_attempts_is_1_to_1000"),
        ({"idempotency_key": ""}, "idempotency_key_is_1_to_255_characters"),
        ({"idempotency_key": "k" * 256}, "idempotency_key_is_1_to_255_characters"),
        ({"payload": []}, "payload_is_an_object"),
        ({"payload": "text"}, "payload_is_an_object"),
        ({"payload": 1}, "payload_is_an_object"),
        ({"payload": {"blob": "x" * 8_388_608}}, "payload_is_at_most_8_mib"),
    ],
    ids=lambda part: str(part)[:40],
)
def test_a_value_that_breaks_a_rule_is_refused_with_the_name_of_the_rule(
    conn: Connection, given: dict[str, Any], rule: str
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as refusal:
        enqueue(conn, **given)
    assert refusal.value.diag.constraint_name == rule
    assert count(conn) == 0


@pytest.mark.parametrize(
    "given",
    [
        {"task": "_a.b:c-D9" + "t" * 191},
        {"queue": "9" * 63},
        {"priority": 0},
        {"priority": 9},
        {"max_attempts": 1},
        {"max_attempts": 1000},
        {"idempotency_key": "k" * 255},
        {"payload": {"blob": "x" * 8_388_000}},
    ],
    ids=lambda given: str(given)[:40],
)
def test_a_value_at_the_limit_of_a_rule_is_stored(conn: Connection, given: dict[str, Any]) -> None:
    enqueue(conn, **given)
    assert count(conn) == 1


def test_a_job_enqueued_in_a_transaction_that_rolls_back_does_not_exist(conn: Connection) -> None:
    conn.execute("BEGIN")
    enqueue(conn, idempotency_key="k")
    conn.execute("ROLLBACK")
    assert count(conn) == 0


def test_a_job_is_not_claimed_before_its_producer_commits(
    conn: Connection, connect: Connect
) -> None:
    producer = connect()
    producer.execute("BEGIN")
    enqueue(producer)
    assert claim_batch(never_waits(conn)) == []


def test_a_client_in_sql_gets_as_many_attempts_as_the_library_gives(conn: Connection) -> None:
    conn.execute("SELECT faultline.enqueue('t'), faultline.enqueue_many('t', '{\"{}\"}')")
    conn.execute("INSERT INTO faultline.jobs (task) VALUES ('t')")
    found = rows(conn, "SELECT max_attempts FROM faultline.jobs")
    assert found == [(DEFAULT_MAX_ATTEMPTS,)] * 3
