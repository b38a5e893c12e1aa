"""Sends the newest progress of each job about once a second.

Reports of all jobs of a worker go in one statement, on a session that is opened with the first report. The
heartbeat's session would save a connection, but a slow report would then delay renewals.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from faultline.errors import FaultlineError
from faultline.metrics import meter
from faultline.model import Claim
from faultline.postgres.driver import DriverError
from faultline.postgres.reconnecting import ReconnectingSession, is_transient, raise_if_cancelled
from faultline.statements.progress import ProgressReport, report_progress
from faultline.workers.leases import Lease

_PAUSE_SECONDS = 1.0  # between two statements
_SETTLE_SECONDS = 1.0  # how long a failed attempt waits for its last report
_BATCH = 1_000
_ROUNDS = 10  # how often a report is sent while its job is locked


class ProgressReports:
    """Keeps the newest report of each lease until it is sent.

    Handlers report from any thread. There is no lock, because an interrupt could leave it locked: each
    operation on the dict is one step.
    """

    def __init__(self, session: ReconnectingSession) -> None:
        self._session = session
        self._newest: dict[str, ProgressReport] = {}  # by lease
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_reports = asyncio.Event()
        self._is_woken = False
        self.is_used = False  # by any job so far
        self._sending: dict[str, asyncio.Task[Sequence[ProgressReport]]] = {}  # by lease

    def report(self, claim: Claim, fraction: float, message: str | None) -> None:
        """Note a report. From any thread; it never waits and never fails."""
        self._newest[claim.lease] = ProgressReport(claim, fraction, message)
        self.is_used = True
        if not self._is_woken and self._loop is not None:
            # Set before the loop can run: `run` may clear it while call_soon_threadsafe has not returned.
            self._is_woken = True
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self._has_reports.set)

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._newest:  # reported before there was a loop to wake
            self._has_reports.set()
        while True:
            await self._has_reports.wait()
            self._has_reports.clear()
            self._is_woken = False  # before the reports are taken: a later one wakes again
            leases = tuple(
                self._newest
            )  # each once: reports that come meanwhile wait for the next round
            for start in range(0, len(leases), _BATCH):
                batch = self._taken(leases[start : start + _BATCH])
                if batch:
                    self._keep(await self._send(batch))
            await asyncio.sleep(_PAUSE_SECONDS)

    async def close(self) -> None:
        for task in set(self._sending.values()):
            task.cancel()
        await self._session.close()

    def drop(self, lease: Lease) -> None:
        """Forget a report that was not sent: the job succeeded, which says more."""
        self._newest.pop(lease.claim.lease, None)

    async def settle(self, lease: Lease) -> None:
        """Send the last report of an attempt that ends without success."""
        key = lease.claim.lease
        waits = [self._sending[key]] if key in self._sending else []
        if last := self._taken([key]):
            waits.append(self._send(last))
        if waits:
            await asyncio.wait(waits, timeout=_SETTLE_SECONDS)

    def _keep(self, reports: Sequence[ProgressReport]) -> None:
        """Send these again in the next round, unless their handlers have reported since."""
        for report in reports:
            self._newest.setdefault(report.claim.lease, report)
        if reports:
            self._has_reports.set()

    def _taken(self, keys: Sequence[str]) -> list[ProgressReport]:
        taken = [self._newest.pop(key, None) for key in keys]
        return [report for report in taken if report is not None]

    def _send(self, reports: list[ProgressReport]) -> asyncio.Task[Sequence[ProgressReport]]:
        task = asyncio.create_task(self._sent(reports))
        keys = [report.claim.lease for report in reports]
        self._sending |= dict.fromkeys(keys, task)
        task.add_done_callback(lambda _: self._has_sent(keys, task))
        return task

    def _has_sent(self, keys: Sequence[str], task: asyncio.Task[Any]) -> None:
        for key in keys:
            if self._sending.get(key) is task:
                del self._sending[key]

    async def _sent(self, reports: list[ProgressReport]) -> Sequence[ProgressReport]:
        """Send reports, and return those to send again in the next round."""
        try:
            recorded = await self._session.run(report_progress(reports))
        except (FaultlineError, DriverError) as error:
            raise_if_cancelled(error)
            if is_transient(error):
                await self._session.pause(error)
                return reports
            return ()  # it would be refused again
        # The statement leaves out jobs without a valid lease, and jobs that are locked at the moment.
        left_out = [report for report in reports if report.claim.id not in recorded]
        again = [r._replace(rounds=r.rounds + 1) for r in left_out if r.rounds + 1 < _ROUNDS]
        refused = len(left_out) - len(again)
        meter.current.reported_progress(recorded=len(recorded), refused=refused)
        return again
