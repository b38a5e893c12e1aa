"""Suggests the name that a mistyped one is closest to."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

_MAX_SUGGESTIONS = 3
_MIN_SIMILARITY = 0.6


def close_matches(name: str, known: Iterable[str]) -> list[str]:
    """The known names that resemble `name`, best first.

    Of dotted names the last part counts too: `chrage` resembles `shop.charge`.
    """
    names = list(dict.fromkeys(known))
    found = difflib.get_close_matches(name, names, _MAX_SUGGESTIONS, _MIN_SIMILARITY)
    if found or "." in name:
        return found
    last_parts = {each.rpartition(".")[2]: each for each in names}
    matches = difflib.get_close_matches(name, last_parts, _MAX_SUGGESTIONS, _MIN_SIMILARITY)
    return [last_parts[each] for each in matches]


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A question with the closest names; None if no name is close."""
    return did_you_mean_one_of(close_matches(name, known))


def joined(question: str | None, advice: str) -> str:
    """A hint of a question, or of other advice, and of what else can be done."""
    if not question:
        return advice
    return f"{question}{'' if question.endswith('?') else ';'} {advice}"


def did_you_mean_one_of(names: Sequence[str]) -> str | None:
    """The question with names that were found to be close; None without any."""
    return f"did you mean {' or '.join(names)}?" if names else None
