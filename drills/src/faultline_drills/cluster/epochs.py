"""What a story promises of epochs: each history has its own, and its claims carry it."""

from __future__ import annotations

from faultline.statements.epochs import COUNTER_BITS
from faultline_drills.context import DrillContext


def expect_epochs(drill: DrillContext, count: int) -> None:
    """That there have been so many, the newest of which tokens were given out in."""
    epochs = [
        epoch for (epoch,) in drill.query("SELECT epoch FROM faultline.epochs ORDER BY epoch")
    ]
    drill.expect(len(epochs) == count, f"{count} histories have {len(epochs)} epochs: {epochs}")
    newest = drill.count("SELECT coalesce(max(fencing_token), 0) FROM faultline.jobs")
    drill.expect(
        newest >> COUNTER_BITS == epochs[-1],
        f"the newest token {newest} is not of epoch {epochs[-1]}",
    )
