"""The messages that matter most, as a proxy recognises them."""

from __future__ import annotations

from faultline_drills.proxy import Message


def is_commit(message: Message) -> bool:
    """The COMMIT that ends a handler's transaction; the ledger entry may be in the same message."""
    return message.sql.strip().casefold().rpartition(";")[2].strip() == "commit"


def is_fenced_commit(message: Message) -> bool:
    """The statement that enters one job into the ledger; a COMMIT is still to follow."""
    return "faultline.commit(" in message.sql


def is_batch_commit(message: Message) -> bool:
    """One statement that commits jobs without a transaction of their own."""
    return "faultline.commit_many" in message.sql


def is_effect(message: Message) -> bool:
    """A handler writes a row of its effect."""
    return "insert into drill.effects" in message.sql.casefold()
