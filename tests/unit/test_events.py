"""Events: their names, and the lines in which they are logged."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest

from faultline.events import ROUTINE, WARNINGS, Event, EventLog

NAMES = {
    "lease_acquired",
    "lease_renewed",
    "lease_lost",
    "lease_reaped",
    "execution_started",
    "commit_ok",
    "commit_unknown",
    "stale_write_blocked",
    "job_retry_scheduled",
    "job_dead",
    "job_released",
    "job_snoozed",
    "jobs_deferred",
    "jobs_rescheduled",
    "handler_error_after_commit",
    "result_discarded",
    "worker_started",
    "worker_draining",
    "worker_exit",
    "worker_stopped",
    "loop_blocked",
    "loop_resumed",
    "session_ended",
    "worker_lost",
    "reconciler_leading",
    "purged",
    "schedule_declared",
    "schedule_fired",
    "schedule_skipped",
    "schedule_failed",
    "schedule_reanchored",
    "schedule_undeclared",
    "schedule_refused",
    "code_changed",
    "embedded_server_started",
    "queue_unused",
    "tasks_unserved",
    "database_unavailable",
    "database_still_unavailable",
    "database_back",
    "degraded",
    "process_drained",
    "process_restarted",
}


def printed(verbose: bool, event: Event, **fields: Any) -> list[str]:
    stream, log = StringIO(), EventLog()
    log.open(style="json", verbose=verbose, stream=stream)
    log.emit(event, **fields)
    return stream.getvalue().splitlines()


def test_the_events_have_exactly_these_names() -> None:
    assert {event.value for event in Event} == NAMES


def test_a_line_is_one_json_object_with_the_event_first() -> None:
    [line] = printed(True, Event.COMMIT_OK, job_id="j", token=1, text="two\nlines")
    fields = json.loads(line)
    assert line.startswith('{"event":"commit_ok",')
    assert (fields["job_id"], fields["token"], fields["text"]) == ("j", 1, "two\nlines")
    assert datetime.fromisoformat(fields["at"]).utcoffset() is not None


@pytest.mark.parametrize("text", ["\udc80", "\x00", "é", "x" * 100_000])
def test_any_text_can_be_logged(text: str) -> None:
    [line] = printed(True, Event.JOB_DEAD, error=text)
    assert json.loads(line)["event"] == "job_dead"


def test_a_value_that_is_not_json_is_logged_as_text() -> None:
    job_id = uuid4()
    [line] = printed(True, Event.JOB_DEAD, job_id=job_id)
    assert json.loads(line)["job_id"] == str(job_id)


def test_a_closed_log_stream_raises_nothing() -> None:
    """A pipe that was closed at the other end must not end an attempt, or a heartbeat."""
    stream, log = StringIO(), EventLog()
    log.open(style="json", stream=stream)
    stream.close()
    log.emit(Event.JOB_DEAD)


@pytest.mark.parametrize("event", Event)
def test_routine_events_are_logged_only_on_request(event: Event) -> None:
    assert len(printed(False, event)) == (0 if event in ROUTINE else 1)
    assert len(printed(True, event)) == 1


def test_nothing_is_both_routine_and_a_warning() -> None:
    assert ROUTINE.isdisjoint(WARNINGS)


def test_a_log_that_was_not_opened_passes_events_to_the_logging_module(
    caplog: pytest.LogCaptureFixture,
) -> None:
    EventLog().emit(Event.JOB_DEAD, task="shop.charge")
    assert caplog.record_tuples == [("faultline", logging.WARNING, "job_dead task=shop.charge")]
