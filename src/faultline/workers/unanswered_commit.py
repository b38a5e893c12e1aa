"""Finds out how a transaction ended whose COMMIT got no answer.

A ledger entry under this token and lease means success. A missing entry proves nothing, because PostgreSQL
may receive the COMMIT later. The worker therefore ends its own lease, under the lock on the job's row. Either
the late commit came first, and PostgreSQL answers that the job is finished, or PostgreSQL will refuse it.
"""

from __future__ import annotations

from faultline.errors import NotCommitted, StaleLease
from faultline.events import Event
from faultline.handler_errors import summary
from faultline.retry_control import Snooze
from faultline.statements import protocol
from faultline.workers.leases import Lease
from faultline.workers.outcomes import Outcomes


async def resolve(
    outcomes: Outcomes, lease: Lease, error: Exception | None, *, is_charged: bool = True
) -> bool:
    """Record success if the ledger has the entry (True); else end the attempt.

    `error` is None if the handler raised none, and `is_charged` says whether a failure uses an attempt.
    """
    outcomes.stop_renewing(lease)  # a heartbeat must not renew the lease that is about to be ended
    if error is not None:
        outcomes.say(Event.COMMIT_UNKNOWN, lease, error=summary(error))
    in_ledger = protocol.in_ledger(lease.claim)
    if await outcomes.persist(outcomes.session, in_ledger, lease):
        outcomes.committed(lease)
        return True
    session = outcomes.new_session(purpose="resolve")  # its own: it may have to wait for the row
    cause = error or NotCommitted("the handler rolled back the transaction that it had fenced")
    try:
        if isinstance(cause, Snooze):
            await outcomes.write_snooze(lease, cause, session=session)
        elif is_charged:
            await outcomes.write_failure(lease, cause, reason=None, session=session)
        else:
            await outcomes.write_outage_release(lease, cause, session=session)
    except StaleLease as stale:
        if await outcomes.persist(session, in_ledger, lease):
            outcomes.committed(lease)
            return True
        await outcomes.record_rejection(lease, stale)
    finally:
        await session.close()
    return False
