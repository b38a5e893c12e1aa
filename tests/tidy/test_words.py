"""The search for banned words finds whole words, also across a line break."""

from __future__ import annotations

import pytest

from tests.tidy.words import banned_words


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("It waits.\nNobody claims it.", 2, "Nobody"),
        ("the job is handed\nback to the queue", 1, "handed back"),
        ("one, two;\nthen they took back the lease", 2, "took back"),
        ("WHOEVER holds it", 1, "WHOEVER"),
    ],
)
def test_a_banned_word_is_found_with_its_line(text: str, line: int, word: str) -> None:
    [found] = banned_words(text)
    assert (found.line, found.word) == (line, word)
    assert found.instead


@pytest.mark.parametrize("text", ["lease_reaped", "a newspaper", "the worker takes the lock"])
def test_parts_of_words_are_not_found(text: str) -> None:
    assert list(banned_words(text)) == []
