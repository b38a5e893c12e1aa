"""Finds statements that begin or end a transaction in a piece of SQL. Pure.

The scanner splits SQL as PostgreSQL's lexer does: nested comments, quoted names, plain, E'' and dollar-
quoted strings, scripts of several statements, and functions with a body from BEGIN ATOMIC to END. It
gives an early and clear error. What it misses, the database refuses (see sql/handler_transactions.sql).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Most SQL contains none of these words, and is not scanned.
_SUSPECT = re.compile(r"\b(?:commit|end|rollback|abort|begin|start|prepare)\b", re.IGNORECASE)
_TOKEN = re.compile(
    r"""
    (?P<space> \s+ | --[^\n]* )
  | (?P<comment> /\* )
  | (?P<text> [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*" )
  | (?P<word> [^\W\d][\w$]* )
  | (?P<dollar> \$(?:[^\W\d]\w*)?\$ )
  | (?P<mark> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_BODY_STATEMENTS = ("function", "procedure")


def find_transaction_control(sql: str) -> str | None:
    """The first statement that begins or ends a transaction; None if there is none.

    Savepoints (SAVEPOINT, RELEASE, ROLLBACK TO) are not transaction control here.
    """
    if not _SUSPECT.search(sql):
        return None
    for words in _statements(sql):
        if found := _control(words):
            return found
    return None


def _control(words: list[str]) -> str | None:
    command = " ".join(word for word in words if word.isidentifier()).upper()
    match words:
        case ["rollback", "to", *_] | ["rollback", "work" | "transaction", "to", *_]:
            return None
        case ["commit" | "end" | "abort" | "begin" | "rollback", *_]:
            return command
        case ["start" | "prepare", "transaction", *_]:
            return command
    return None


def _statements(sql: str) -> Iterator[list[str]]:
    """The first words of each statement in lower case, at most four."""
    words: list[str] = []
    parentheses = body = 0
    for symbol in _symbols(sql):
        if symbol == ";" and not parentheses and not body:
            yield words
            words = []
            continue
        match symbol:
            case "(":
                parentheses += 1
            case ")":
                parentheses = max(0, parentheses - 1)
            case "begin" if _has_body(words):
                body += 1
            case "case" if body:
                body += 1
            case "end" if body:
                body -= 1
        if len(words) < 4:
            words.append(symbol)
    yield words


def _has_body(words: list[str]) -> bool:
    """Whether BEGIN opens a function's body: CREATE FUNCTION … BEGIN ATOMIC."""
    return words[:1] == ["create"] and any(word in _BODY_STATEMENTS for word in words)


def _symbols(sql: str) -> Iterator[str]:
    """Words in lower case, other characters, one quote per string or quoted name."""
    position = 0
    while match := _TOKEN.match(sql, position):
        position = match.end()
        match match.lastgroup:
            case "word":
                yield match[0].lower()
            case "mark":
                yield match[0]
            case "text":
                yield "'"
            case "dollar":
                end = sql.find(match[0], position)
                position = len(sql) if end < 0 else end + len(match[0])
                yield "'"
            case "comment":
                position = _end_of_comment(sql, position)


def _end_of_comment(sql: str, position: int) -> int:
    depth = 1
    for edge in _COMMENT_EDGE.finditer(sql, position):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(sql)
