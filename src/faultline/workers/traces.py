"""The beginning of an attempt's trace, which may name the worker that was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultline.workers.leases import Lease
from faultline.workers.outcomes import Outcomes

if TYPE_CHECKING:
    from faultline.tracing.attempt import AttemptTrace


async def begin_trace(outcomes: Outcomes, lease: Lease, trace: AttemptTrace) -> None:
    trace.begin()
    if lease.claim.crashes > 0:
        before = await outcomes.predecessor(lease)
        if before is not None and before.outcome in ("expired", "worker_lost"):
            trace.took_over(
                lost_worker=before.worker, lost_token=before.fencing_token, cause=before.outcome
            )
