"""The lines that a worker writes on a terminal: content, bound, slow terminals."""

from __future__ import annotations

import asyncio
import re
import threading
from io import StringIO

from faultline.model import Claim
from faultline.steady import steady_now
from faultline.workers.job_lines import MAX_LINES, JobLines
from faultline.workers.leases import Lease
from tests.waiting import wait_until

WINDOW_SECONDS = 0.2


def ended(*, attempt: int = 1, has_begun: bool = True) -> Lease:
    claim = Claim(
        id="01a1de8e-68df-7076-9a2d-c2b6a3a0ec12",
        fencing_token=1,
        lease="0",
        task="shop.mail.send",
        queue="mail",
        payload_json="{}",
        attempt=attempt,
        max_attempts=3,
        crashes=0,
        priority=5,
        due_at="",
    )
    lease = Lease(claim, sent_at=0, lease_seconds=15)
    lease.began_at = steady_now() - 0.25 if has_begun else None
    return lease


async def write(*attempts: tuple[Lease, str]) -> list[str]:
    out = StringIO()
    lines = JobLines(out, window_seconds=WINDOW_SECONDS)
    for lease, exit_reason in attempts:
        lines.attempt_ended(lease, exit_reason)
    lines.close()
    return out.getvalue().splitlines()


def test_a_line_has_time_task_id_outcome_and_duration() -> None:
    [line] = asyncio.run(write((ended(), "success")))
    assert re.fullmatch(r"\d\d:\d\d:\d\dZ  shop\.mail\.send  (\S+)  succeeded  2[5-9]\d ms", line)
    # The whole id, because commands take no part of one.
    assert line.split()[2] == "01a1de8e-68df-7076-9a2d-c2b6a3a0ec12"


def test_a_later_attempt_has_its_number() -> None:
    [line] = asyncio.run(write((ended(attempt=2), "failed")))
    assert "  attempt 2  failed  " in line


def test_an_attempt_that_is_repeated_says_when_and_how_often() -> None:
    async def main() -> list[str]:
        out = StringIO()
        lines = JobLines(out, window_seconds=WINDOW_SECONDS)
        lines.attempt_ended(ended(), "failed", retry_in_seconds=8.2)
        lines.attempt_ended(ended(attempt=2), "failed", retry_in_seconds=0.25)
        lines.attempt_ended(ended(attempt=3), "failed")
        for _ in range(MAX_LINES):
            lines.attempt_ended(ended(), "failed", retry_in_seconds=8)
        lines.close()
        return out.getvalue().splitlines()

    written = asyncio.run(main())
    first, second, last = written[:3]
    assert "  retrying in 8 s (attempt 1 of 3)  2" in first
    assert "  retrying in 0.25 s (attempt 2 of 3)  2" in second
    assert "failed" not in first + second
    assert "  attempt 3  failed  " in last
    assert written[-1].endswith("3 more jobs: 3 retrying")


def test_attempts_that_did_not_begin_have_no_line() -> None:
    unstarted = ended(has_begun=False)
    attempts = [(unstarted, reason) for reason in ("released", "stale", "deferred")]
    assert asyncio.run(write(*attempts)) == []


def test_arguments_that_do_not_fit_have_a_line_without_a_duration() -> None:
    [line] = asyncio.run(write((ended(has_begun=False), "failed")))
    assert line.endswith("  failed")


def test_many_attempts_are_lines_up_to_a_bound_and_one_summary() -> None:
    attempts = [(ended(), "success")] * 500 + [(ended(), "failed")] * 2
    lines = asyncio.run(write(*attempts))
    assert len(lines) == MAX_LINES + 1
    assert lines[-1].endswith("482 more jobs: 480 succeeded, 2 failed")


def test_while_jobs_are_fast_there_is_one_summary_per_window() -> None:
    """And after a quiet window there are lines again."""
    out = StringIO()

    def summaries() -> int:
        return out.getvalue().count("more jobs:")

    async def run() -> None:
        lines = JobLines(out, window_seconds=WINDOW_SECONDS)
        for wanted in (1, 2, 3):
            for _ in range(MAX_LINES + 5):
                lines.attempt_ended(ended(), "success")
            await asyncio.to_thread(wait_until, lambda: summaries() == wanted)  # noqa: B023
        assert len(out.getvalue().splitlines()) == MAX_LINES + 3
        await asyncio.sleep(2 * WINDOW_SECONDS)  # the window ends, and nothing can be seen of it
        lines.attempt_ended(ended(), "success")
        lines.close()

    asyncio.run(run())
    assert len(out.getvalue().splitlines()) == MAX_LINES + 4
    assert "a3a0ec12" in out.getvalue().splitlines()[-1]


class StuckTerminal(StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.continues = threading.Event()

    def write(self, text: str) -> int:
        self.continues.wait()
        return super().write(text)


def test_a_terminal_that_accepts_nothing_blocks_nothing() -> None:
    out = StuckTerminal()

    async def run() -> float:
        lines = JobLines(out, window_seconds=0.001)
        began = steady_now()
        for _ in range(2_000):
            lines.attempt_ended(ended(), "success")
            await asyncio.sleep(0)
        lines.close()
        return steady_now() - began

    try:
        assert asyncio.run(run()) < 10
    finally:
        out.continues.set()
