"""The command line accepts every `faultline` command in the documentation."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from faultline.cli.main import cli
from faultline_drills.judging.rules import RULES
from tests.tidy.pages import DOCS, Page, pages

PAGES = [page for page in pages() if page.is_written_by_hand]
# Of these a page shows only a part: placeholders, optional arguments, shell syntax.
_IS_INCOMPLETE = re.compile(r"[…\[|]|&&|<<")
_SOME_JOB = "01a1de8e-68df-7076-9a2d-c2b6a3a0ec12"
_STANDS_FOR_A_VALUE = {"JOB": _SOME_JOB, "$JOB": _SOME_JOB}


def commands(page: Page) -> list[str]:
    blocks = re.findall(r"^ *```[a-z]*\n(.*?)^ *```", page.text, re.MULTILINE | re.DOTALL)
    lines = [re.sub(r"^\$ | &$", "", line) for block in blocks for line in block.splitlines()]
    return [
        text
        for text in (*lines, *page.code_spans)
        if re.match(r"faultline [a-z-]", text) and not _IS_INCOMPLETE.search(text)
    ]


def parse(command: str) -> None:
    """Let click read the names and options of a command, without running it."""
    words = [_STANDS_FOR_A_VALUE.get(word, word) for word in shlex.split(command, comments=True)]
    current: click.Command = cli
    name, rest = words[0], words[1:]
    while isinstance(current, click.Group):
        context = click.Context(current)
        _, left, _ = current.make_parser(context).parse_args(list(rest))
        if not left:
            return
        found_name, found, rest = current.resolve_command(context, left)
        assert found_name is not None
        assert found is not None
        name, current = found_name, found
    current.make_context(name, list(rest))


def mistake_in(command: str) -> str:
    """The error of click; pages may leave out an argument or name a missing file."""
    try:
        parse(command)
    except click.UsageError as error:
        left_out = ("Missing", "requires an argument", "does not exist")
        message = error.format_message()
        return "" if any(words in message for words in left_out) else f"{command}: {message}"
    return ""


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=str)
def test_every_command_of_a_page_is_accepted(page: Page) -> None:
    assert list(filter(None, map(mistake_in, commands(page)))) == []


def test_an_unknown_option_or_command_is_found() -> None:
    assert "--no-such-option" in mistake_in("faultline worker --no-such-option")
    assert "no-such-command" in mistake_in("faultline no-such-command")


def test_the_rules_of_the_drills_are_listed() -> None:
    page = (DOCS / "drills" / "README.md").read_text()
    listed = re.findall(r"^\| \d+ \| .* \| `(\w+)` \|$", page, re.MULTILINE)
    assert listed == list(RULES)
