"""Expectations about epochs: one per promotion or restore, carried by every token."""

from __future__ import annotations

from faultline.statements.epochs import COUNTER_BITS
from faultline_drills.context import DrillContext


def expect_epochs(drill: DrillContext, count: int) -> None:
    """Expect so many epochs, and a newest token of the newest epoch."""
    epochs = [
        epoch for (epoch,) in drill.query("SELECT epoch FROM faultline.epochs ORDER BY epoch")
    ]
    drill.expect(len(epochs) == count, f"expected {count} epochs, found {len(epochs)}: {epochs}")
    newest = drill.count("SELECT coalesce(max(fencing_token), 0) FROM faultline.jobs")
    drill.expect(
        newest >> COUNTER_BITS == epochs[-1],
        f"the newest token {newest} does not belong to epoch {epochs[-1]}",
    )
