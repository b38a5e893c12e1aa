"""Each term of docs/glossary.md is defined once, in one sentence."""

from __future__ import annotations

import re
from collections import Counter

from tests.tidy.pages import DOCS

ROWS = re.findall(r"^\| (\*\*.*) \| (.*) \|$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
TERMS = [term for named, _ in ROWS for term in re.findall(r"\*\*([^*]+)\*\*", named)]


def test_the_words_of_the_protocol_are_defined() -> None:
    assert {"job", "task", "handler", "queue", "claim", "lease", "fencing token"} <= set(TERMS)
    assert {"heartbeat", "fenced commit", "ledger", "stale", "reconciler", "dead"} <= set(TERMS)
    assert {"drill", "scenario", "nemesis", "subject", "control", "verdict"} <= set(TERMS)


def test_a_term_is_defined_once() -> None:
    assert [term for term, times in Counter(TERMS).items() if times > 1] == []


def test_a_definition_is_a_sentence() -> None:
    assert [meaning for _, meaning in ROWS if not meaning.endswith(".")] == []
