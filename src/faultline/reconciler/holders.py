"""Ends the sessions that keep lapsed jobs locked, and says so where that is not possible.

A process that froze inside its transaction keeps its session and the lock on its job. PostgreSQL ends such a
session itself when it idles; in the middle of COPY FROM STDIN it counts as active, and nothing would
end it. The function of the schema's owner is tried first, then this account's own rights: the
reconciler mostly has the same account as the worker that froze.
"""

from __future__ import annotations

from faultline.config import HOLDER_GRACE_SECONDS
from faultline.errors import FaultlineError
from faultline.events import Event, emit
from faultline.postgres.driver import DriverError
from faultline.postgres.reconnecting import ReconnectingSession, is_transient
from faultline.statements import locks
from faultline.statements.locks import LapsedHolder
from faultline.steady import steady_now

_MAX_JOBS = 100
_LOOK_SECONDS = 1.0


class Holders:
    def __init__(self, link: ReconnectingSession) -> None:
        self._link = link
        self._look_at = 0.0
        self._said: set[tuple[str, int | None, str | None]] = set()

    async def look(self, overdue_seconds: float) -> None:
        """End what may be ended, if a lease ran out long enough ago, at most once a second."""
        if overdue_seconds < HOLDER_GRACE_SECONDS:
            self._said.clear()
            return
        if steady_now() < self._look_at:
            return
        self._look_at = steady_now() + _LOOK_SECONDS
        statement = locks.end_lapsed_holders(grace_seconds=HOLDER_GRACE_SECONDS, max_jobs=_MAX_JOBS)
        found = await self._link.run(statement)
        seen = {_key(holder) for holder in found}
        self._said &= seen
        for holder in found:
            outcome = holder.outcome
            if outcome in ("hidden", "not_permitted"):
                outcome = await self._end_by_own_account(holder)
            self._say(holder, outcome)

    async def _end_by_own_account(self, holder: LapsedHolder) -> str:
        statement = locks.end_session(holder, grace_seconds=HOLDER_GRACE_SECONDS)
        try:
            if await self._link.run(statement):
                return "ended"
            return "working" if await self._link.run(locks.is_visible(holder)) else "hidden"
        except (FaultlineError, DriverError) as error:
            if is_transient(error):
                raise
            return "not_permitted"

    def _say(self, holder: LapsedHolder, outcome: str) -> None:
        key = _key(holder)
        if outcome == "working" or (outcome != "ended" and key in self._said):
            return
        self._said.add(key)
        who = {
            "job_id": str(holder.job_id),
            "lost_worker": holder.worker,
            "pid": holder.pid,
            "account": holder.account,
            "application": holder.application,
        }
        if outcome == "ended":
            emit(Event.SESSION_ENDED, **who)
        elif holder.prepared_as is not None:
            gid = holder.prepared_as.replace("'", "''")
            emit(
                Event.DEGRADED,
                reason=f"the prepared transaction '{gid}' locks a job whose lease ran out: run COMMIT"
                f" PREPARED '{gid}' or ROLLBACK PREPARED '{gid}'",
                **who,
            )
        else:
            emit(
                Event.DEGRADED,
                reason=f"session {holder.pid} locks a job whose lease ran out, and this account may"
                f" not end it: as a superuser run SELECT pg_terminate_backend({holder.pid}), and"
                " GRANT pg_signal_backend, pg_read_all_stats TO the owner of the schema faultline",
                **who,
            )


def _key(holder: LapsedHolder) -> tuple[str, int | None, str | None]:
    return str(holder.job_id), holder.pid, holder.prepared_as
