"""Ends the sessions of frozen processes that keep lapsed jobs locked.

A process that froze inside its transaction keeps its session and the lock on its job. PostgreSQL ends an
idle session itself, but a session in the middle of COPY FROM STDIN counts as active and would stay. The
reconciler first calls the function of the schema's owner, then uses its own account's rights: it mostly
has the same account as the worker that froze. Where neither may end the session, it logs what to do.
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


class FrozenSessions:
    def __init__(self, session: ReconnectingSession) -> None:
        self._session = session
        self._look_at = 0.0
        self._logged: set[tuple[str, int | None, str | None]] = set()

    async def look(self, overdue_seconds: float) -> None:
        """End such sessions if a lease ran out long enough ago, at most once a second."""
        if overdue_seconds < HOLDER_GRACE_SECONDS:
            self._logged.clear()
            return
        if steady_now() < self._look_at:
            return
        self._look_at = steady_now() + _LOOK_SECONDS
        statement = locks.end_lapsed_holders(grace_seconds=HOLDER_GRACE_SECONDS, max_jobs=_MAX_JOBS)
        found = await self._session.run(statement)
        seen = {_key(holder) for holder in found}
        self._logged &= seen
        for holder in found:
            outcome = holder.outcome
            if outcome in ("hidden", "not_permitted"):
                outcome = await self._end_by_own_account(holder)
            self._log(holder, outcome)

    async def _end_by_own_account(self, holder: LapsedHolder) -> str:
        statement = locks.end_session(holder, grace_seconds=HOLDER_GRACE_SECONDS)
        try:
            if await self._session.run(statement):
                return "ended"
            return "working" if await self._session.run(locks.is_visible(holder)) else "hidden"
        except (FaultlineError, DriverError) as error:
            if is_transient(error):
                raise
            return "not_permitted"

    def _log(self, holder: LapsedHolder, outcome: str) -> None:
        key = _key(holder)
        if outcome == "working" or (outcome != "ended" and key in self._logged):
            return
        self._logged.add(key)
        session = {
            "job_id": str(holder.job_id),
            "lost_worker": holder.worker,
            "pid": holder.pid,
            "account": holder.account,
            "application": holder.application,
        }
        if outcome == "ended":
            emit(Event.SESSION_ENDED, **session)
        elif holder.prepared_as is not None:
            gid = holder.prepared_as.replace("'", "''")
            emit(
                Event.DEGRADED,
                reason=f"the prepared transaction '{gid}' locks a job whose lease ran out: run COMMIT"
                f" PREPARED '{gid}' or ROLLBACK PREPARED '{gid}'",
                **session,
            )
        else:
            emit(
                Event.DEGRADED,
                reason=f"session {holder.pid} locks a job whose lease ran out, and this account may"
                f" not end it: as a superuser run SELECT pg_terminate_backend({holder.pid}), and"
                " GRANT pg_signal_backend, pg_read_all_stats TO the owner of the schema faultline",
                **session,
            )


def _key(holder: LapsedHolder) -> tuple[str, int | None, str | None]:
    return str(holder.job_id), holder.pid, holder.prepared_as
