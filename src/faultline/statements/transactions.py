"""Statements that begin and end the transaction of a handler's block."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import timedelta
from typing import LiteralString

from faultline.model import Claim
from faultline.statements.protocol import holders
from faultline.statements.session_settings import Values
from faultline.statements.statement import Statement, no_result

# Array literals, which asyncpg would refuse for a parameter of an array type.
_HOLDERS: LiteralString = "%s::text::uuid[], %s::text::bigint[], %s::text::uuid[]"


def open_transaction(
    claim: Claim, *, completes: bool, idle_seconds: float | None = None
) -> Statement[None]:
    """Make PostgreSQL refuse the COMMIT until the transaction is closed."""
    return Statement(
        "SELECT faultline.open_transaction(%s::uuid, %s, %s::uuid, %s, %s)",
        (
            *_holder(claim),
            completes,
            None if idle_seconds is None else timedelta(seconds=idle_seconds),
        ),
        no_result,
    )


def close_transaction(claim: Claim, *, result: str | None = None) -> Statement[None]:
    """Insert the ledger entry of an opened transaction, or end a step.

    `result` is JSON text.
    """
    return Statement(
        "SELECT faultline.close_transaction(%s::uuid, %s, %s::uuid, %s::jsonb)",
        (*_holder(claim), result),
        no_result,
    )


def open_batch(claims: Sequence[Claim], *, completes: bool, idle_seconds: float) -> Statement[None]:
    """Lock and judge all jobs of a batch; refuse the COMMIT until the batch is closed."""
    return Statement(
        f"SELECT faultline.open_batch({_HOLDERS}, %s, %s)",
        (*holders(claims), completes, timedelta(seconds=idle_seconds)),
        no_result,
    )


def close_batch(claims: Sequence[Claim], *, results: Sequence[str | None] = ()) -> Statement[None]:
    """Insert one ledger entry per job of an opened batch, or end its step.

    `results` are JSON texts, one for each job.
    """
    return Statement(
        f"SELECT faultline.close_batch({_HOLDERS}, %s::text[]::jsonb[])",
        (*holders(claims), list(results) if any(results) else None),
        no_result,
    )


def begin(isolation: LiteralString | None = None) -> Statement[None]:
    """Begin, with everything explicit that a session's defaults could change.

    The sessions of handlers are read-only outside of their blocks, and an earlier block may have changed
    the defaults.
    """
    level: LiteralString = "READ COMMITTED" if isolation is None else isolation
    return Statement(f"BEGIN ISOLATION LEVEL {level} READ WRITE NOT DEFERRABLE", (), no_result)


@functools.cache  # a worker sends one list with every block
def reset_session(settings: Values) -> Statement[None]:
    """Undo what an earlier block left in its session; `settings` are set again."""
    names: LiteralString = ", ".join(f"'{name}'" for name, _ in settings)
    values: LiteralString = ", ".join(f"'{value}'" for _, value in settings)
    return Statement(
        f"SELECT faultline.reset_session(ARRAY[{names}], ARRAY[{values}])", (), no_result
    )


def release_locks() -> Statement[None]:
    """Release the locks and channels of a session that returns to its pool."""
    return Statement("UNLISTEN *; SELECT pg_advisory_unlock_all()", (), no_result)


def lift_limits() -> Statement[None]:
    """Exempt the next statements of this transaction from the account's limits.

    SET takes no snapshot, so the fence is still the first statement that reads data.
    """
    return Statement("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0", (), no_result)


def restore_limits() -> Statement[None]:
    """Restore the account's own limits, for the user's statements."""
    return Statement(
        "SET LOCAL statement_timeout TO DEFAULT; SET LOCAL lock_timeout TO DEFAULT", (), no_result
    )


def reset_role() -> Statement[None]:
    """Reset a role that a handler set and that may not call Faultline's functions."""
    return Statement("RESET ROLE", (), no_result)


def commit_transaction() -> Statement[None]:
    return Statement("COMMIT", (), no_result)


def _holder(claim: Claim) -> tuple[str, int, str]:
    return (claim.id, claim.fencing_token, claim.lease)
