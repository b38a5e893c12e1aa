"""Claims of several groups of queues, each with its own limit, in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from faultline.model import Claim
from faultline.statements.protocol import CLAIM_COLUMNS, claim, claims_of
from faultline.statements.statement import Statement

# The limit on the text of all payloads of one statement: the default of faultline.claim.
_MAX_BYTES = 16 * 1024 * 1024


class ClaimRequest(NamedTuple):
    """At most `batch_size` jobs of these queues, searched from `first_priority` on."""

    queues: Sequence[str]
    batch_size: int
    first_priority: int = 0


def claim_requested(
    worker: str,
    requests: Sequence[ClaimRequest],
    *,
    lease_seconds: float,
    resume_after: str | None = None,
    tasks: str | None = None,
) -> Statement[list[Claim]]:
    """Claim for each request. A single one for all priorities is an ordinary claim.

    The requests name different queues. PostgreSQL runs them one after the other, in one transaction.
    """
    if len(requests) == 1 and not requests[0].first_priority:
        return claim(
            worker,
            requests[0].queues,
            batch_size=requests[0].batch_size,
            lease_seconds=lease_seconds,
            resume_after=resume_after,
            tasks=tasks,
        )
    return Statement(
        f"""
        SELECT {CLAIM_COLUMNS}
        FROM unnest(%s::text[], %s::integer[], %s::integer[])
            AS request (queues, batch_size, first_priority)
        CROSS JOIN LATERAL faultline.claim(%s, request.queues::text[], request.batch_size, %s,
            %s::jsonb, %s::text[], %s::bigint, request.first_priority)
        """,  # noqa: S608
        (
            [_array(request.queues) for request in requests],
            [request.batch_size for request in requests],
            [request.first_priority for request in requests],
            worker,
            timedelta(seconds=lease_seconds),
            resume_after,
            tasks,
            _MAX_BYTES // len(requests),
        ),
        claims_of,
    )


def _array(names: Sequence[str]) -> str:
    """An array literal. Queue names contain neither quotes nor backslashes."""
    return "{" + ",".join(f'"{name}"' for name in names) + "}"
