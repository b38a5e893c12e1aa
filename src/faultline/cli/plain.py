"""Text of unknown origin, made safe for a terminal."""

from __future__ import annotations


def plain(value: object) -> str:
    """Text of unknown origin: a job's error, say, must not move the cursor or colour the screen."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in str(value)
    )
