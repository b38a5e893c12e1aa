"""The same statements give the same messages, however they are split into packets."""

from __future__ import annotations

from typing import Any

import psycopg

from faultline_drills.proxy import Action, Match, MessageKind, Proxy
from faultline_drills.proxy.wire import ClientStream, ServerStream
from tests.proxy.conftest import Through


def some_work(proxy: Proxy, conn: psycopg.Connection[Any]) -> None:
    termination = proxy.on(Match(kind=MessageKind.TERMINATE), Action.FORWARD)
    for number in range(8):  # at its sixth use the driver prepares it, with another message
        conn.execute("SELECT %s::int AS chosen", [number])
    with conn.transaction():
        conn.execute("SELECT 'in a transaction'")
    conn.close()
    assert termination.wait(30)


def test_one_statement_is_one_message_named_by_its_sql(proxy: Proxy, through: Through) -> None:
    some_work(proxy, through("client"))
    found = [
        (m.kind, m.text)
        for m in proxy.log
        if m.kind not in (MessageKind.STARTUP, MessageKind.PASSWORD)
    ]
    assert found == [
        *[(MessageKind.STATEMENT, "SELECT $1::int AS chosen")] * 9,
        (MessageKind.QUERY, "BEGIN"),
        (MessageKind.QUERY, "SELECT 'in a transaction'"),
        (MessageKind.QUERY, "COMMIT"),
        (MessageKind.TERMINATE, ""),
    ]
    assert {message.application for message in proxy.log} == {"client"}


def test_the_same_work_is_numbered_alike_each_time(proxy: Proxy, through: Through) -> None:
    for _ in range(3):
        some_work(proxy, through())
    by_connection: dict[int, list[tuple[int, MessageKind, str]]] = {}
    for message in proxy.log:
        by_connection.setdefault(message.connection, []).append(
            (message.nth, message.kind, message.text)
        )
    first, second, third = by_connection.values()
    assert first == second == third
    assert [message.number for message in proxy.log] == list(range(1, proxy.message_count + 1))


def test_a_message_is_found_by_its_place_among_those_that_fit(
    proxy: Proxy, through: Through
) -> None:
    other, meant = through("other"), through("meant")
    interception = proxy.on(Match(text="as chosen", application="meant", nth=3), Action.FORWARD)
    other.execute("SELECT 0 AS chosen")
    for number in range(4):
        assert interception.message is None or number > 2
        meant.execute("SELECT %s::int AS chosen", [number])
    assert interception.message is not None
    chosen = [m for m in proxy.log if "chosen" in m.text and m.application == "meant"]
    assert interception.message == chosen[2]


def test_a_client_stream_can_be_parsed_byte_by_byte() -> None:
    parse = b"P" + (4 + 13).to_bytes(4) + b"s\0SELECT 1\0\0\0"
    bind = b"B" + (4 + 4).to_bytes(4) + b"\0s\0\0"
    sync = b"S" + (4).to_bytes(4)
    sent = parse + bind + sync
    whole = list(ClientStream().feed(sent))
    stream = ClientStream()
    bytewise = [part for byte in sent for part in stream.feed(bytes([byte]))]
    assert whole == bytewise
    assert [(part.kind, part.sql, part.data) for part in whole] == [
        (MessageKind.STATEMENT, "SELECT 1", sent)
    ]
    assert stream.rest == b""


def test_a_server_stream_can_be_parsed_byte_by_byte() -> None:
    row = b"D" + (4 + 100).to_bytes(4) + b"r" * 100
    ready = b"Z" + (5).to_bytes(4) + b"T"
    sent = row + ready + row
    whole = list(ServerStream().feed(sent))
    assert [(answer.data, answer.is_complete) for answer in whole] == [
        (row + ready, True),
        (row, False),
    ]
    stream = ServerStream()
    bytewise = [answer for byte in sent for answer in stream.feed(bytes([byte]))]
    assert b"".join(answer.data for answer in bytewise) == sent
    assert [a.transaction_status for a in bytewise if a.is_complete] == ["T"]


def test_a_reply_that_asks_for_copy_rows_is_complete_with_its_whole_frame() -> None:
    ready_for_rows = b"G" + (4 + 3).to_bytes(4) + b"\0\0\0"
    sent = ready_for_rows + b"N" + (4 + 1).to_bytes(4) + b"\0"
    answers = list(ServerStream().feed(sent))
    assert [(a.data, a.is_complete) for a in answers] == [
        (ready_for_rows, True),
        (sent[len(ready_for_rows) :], False),
    ]
