"""Predicates for the messages of Faultline's protocol, for `Match(where=…)`."""

from __future__ import annotations

from faultline_drills.proxy.wire import Message


def is_commit(message: Message) -> bool:
    """The COMMIT of a handler's transaction, perhaps together with its ledger entry."""
    return message.sql.strip().casefold().rpartition(";")[2].strip() == "commit"


def is_fenced_commit(message: Message) -> bool:
    """The call that enters one job into the ledger, before the COMMIT."""
    return "faultline.commit(" in message.sql


def is_batch_commit(message: Message) -> bool:
    """The statement that commits several jobs without a handler's transaction."""
    return "faultline.commit_many" in message.sql


def is_effect(message: Message) -> bool:
    """A handler's INSERT of a row of its effect."""
    return "insert into drill.effects" in message.sql.casefold()
