"""A verdict on a terminal, and as an exit code."""

from __future__ import annotations

from faultline_drills.checker import Verdict

STYLES: dict[str, str] = {
    Verdict.VALID: "green",
    Verdict.INVALID: "bold red",
    Verdict.UNKNOWN: "yellow",
}


def exit_code(*verdicts: Verdict) -> int:
    """Of several drills: a broken rule outweighs a story that did not take place."""
    if Verdict.INVALID in verdicts:
        return 1
    return 2 if not verdicts or Verdict.UNKNOWN in verdicts else 0
