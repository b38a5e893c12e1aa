"""The queues that the database or the application knows, to notice a typo."""

from __future__ import annotations

from faultline.cli.completion import queues_of
from faultline.cli.context import Context
from faultline.model import DEFAULT_QUEUE
from faultline.postgres.sessions import Connection, run
from faultline.statements import queues as statements
from faultline.suggestions import did_you_mean


def other_queues(context: Context, conn: Connection, queue: str) -> list[str] | None:
    """The known queues if `queue` is none of them, else None."""
    if run(conn, statements.is_used(queue)):
        return None
    known = {DEFAULT_QUEUE} | {each.queue for each in run(conn, statements.queues(exact_up_to=1))}
    known |= {each.queue for each in run(conn, statements.paused())}
    if queue not in known and context.app_path is not None:
        known |= queues_of(context.app)
    return None if queue in known else sorted(known)


def near_queue(context: Context, conn: Connection, queue: str) -> str | None:
    """A question with the closest queues; None if `queue` is known or resembles none."""
    others = other_queues(context, conn, queue)
    return None if others is None else did_you_mean(queue, others)
