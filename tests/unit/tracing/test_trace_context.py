"""The trace context in a job's row: round trips, and invalid text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultline.tracing.trace_context import MAX_STATE_LENGTH, TraceContext, from_headers, parse

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
ROOM_IN_THE_ROW = 1000


def test_a_trace_context_survives_the_row() -> None:
    origin = TraceContext(TRACE, SPAN, "01", "vendor=a,other=b")
    assert origin.text() == f"{PARENT}\nvendor=a,other=b"
    assert parse(origin.text()) == origin


def test_a_trace_context_without_a_tracestate_is_one_line() -> None:
    assert TraceContext(TRACE, SPAN, "00").text() == f"00-{TRACE}-{SPAN}-00"


def test_the_bulk_mark_is_not_passed_on_to_later_enqueues() -> None:
    marked = parse(TraceContext(TRACE, SPAN, "01", "vendor=a", is_bulk=True).text())
    assert marked == TraceContext(TRACE, SPAN, "01", "vendor=a", is_bulk=True)
    assert from_headers(PARENT, "faultline=bulk,vendor=a") == f"{PARENT}\nvendor=a"


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "nonsense",
        PARENT.upper(),
        PARENT + "-more",  # version 00 ends here
        PARENT[:-1],
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"\n{PARENT}",
        "{" * 1000,
        "\x7f\u2028" * 100,
    ],
)
def test_text_that_is_no_trace_context_is_ignored(text: str | None) -> None:
    assert parse(text) is None


def test_a_later_version_is_read_as_far_as_it_is_understood() -> None:
    assert parse(f"01-{TRACE}-{SPAN}-01-more") == TraceContext(TRACE, SPAN, "01")


def test_a_state_that_cannot_be_read_does_not_cost_the_place() -> None:
    assert parse(f"{PARENT}\nvendor=\u00e9") == TraceContext(TRACE, SPAN, "01")


def test_where_there_is_no_room_for_all_of_a_state_its_long_members_go_first() -> None:
    long = f"long={'x' * 200}"
    short = [f"k{number}={'x' * 40}" for number in range(20)]
    kept = TraceContext(TRACE, SPAN, "01", ",".join([long, *short])).text().partition("\n")[2]
    assert len(kept) <= MAX_STATE_LENGTH
    assert kept.split(",") == short[: len(kept.split(","))]


@pytest.mark.parametrize(
    ("traceparent", "tracestate"),
    [(None, None), (None, "vendor=a"), ("nonsense", "vendor=a"), (f"{PARENT}\nvendor=a", None)],
)
def test_headers_that_say_nothing_carry_nothing(
    traceparent: str | None, tracestate: str | None
) -> None:
    assert from_headers(traceparent, tracestate) is None


@given(st.text(max_size=1000), st.booleans())
def test_every_tracestate_fits_into_the_row(state: str, is_bulk: bool) -> None:
    text = TraceContext(TRACE, SPAN, "01", state, is_bulk).text()
    assert len(text) <= ROOM_IN_THE_ROW


@given(st.text(max_size=1000))
def test_every_text_in_a_row_is_parsed_or_ignored(text: str) -> None:
    origin = parse(f"{PARENT}\n{text}")
    assert origin is not None
    assert parse(origin.text()) == origin
    assert parse(text) is None
