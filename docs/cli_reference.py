"""`make cli-reference`: writes the commands' part of cli.md from their help texts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from faultline.cli.global_options import GlobalOption
from faultline.cli.main import cli

DOCUMENT = Path(__file__).with_name("cli.md")
# Everything below this line of the page is written by this program.
MARK = "<!-- written by make cli-reference -->"
_WIDTH = 118


def document() -> str:
    """The page with its written part brought up to date."""
    by_hand = DOCUMENT.read_text().partition(MARK)[0]
    return f"{by_hand}{MARK}\n\n{_reference()}"


def _reference() -> str:
    context = _context(cli, None, "faultline")
    parts = ["## All commands", _options(cli, context), _index(cli, context)]
    for command, inner in _commands(cli, context):
        parts += [f"### {inner.command_path}", *_paragraphs(command), _usage(command, inner)]
        parts += [_options(command, inner), _index(command, inner)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _context(command: click.Command, parent: click.Context | None, name: str) -> click.Context:
    return click.Context(command, parent, info_name=name)


def _commands(
    group: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    """The commands below a group, each with its context, depth first."""
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            inner = _context(command, context, name)
            yield command, inner
            yield from _commands(command, inner)


def _paragraphs(command: click.Command) -> list[str]:
    paragraphs = (command.help or "").split("\n\n")
    return [textwrap.fill(" ".join(each.split()), _WIDTH) for each in paragraphs]


def _usage(command: click.Command, context: click.Context) -> str:
    words = [context.command_path, *command.collect_usage_pieces(context)]
    return f"```\n{' '.join(words)}\n```"


def _options(command: click.Command, context: click.Context) -> str:
    """A table of the options; those of all commands are listed once, at the top."""
    rows = []
    for param in command.params:
        if isinstance(param, GlobalOption) or not isinstance(param, click.Option):
            continue
        if (record := param.get_help_record(context)) is not None:
            variable = f" Variable: `{param.envvar}`." if param.envvar else ""
            rows.append((f"`{record[0]}`", f"{' '.join(record[1].split())}{variable}"))
    return _table("option", rows)


def _index(command: click.Command, context: click.Context) -> str:
    if not isinstance(command, click.Group):
        return ""
    rows = []
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        if inner is not None and not inner.hidden:
            anchor = f"{context.command_path} {name}".replace(" ", "-")
            rows.append((f"[{name}](#{anchor})", inner.get_short_help_str(limit=200)))
    return _table("command", rows)


def _table(first: str, rows: list[tuple[str, str]]) -> str:
    if not rows:
        return ""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {first} | meaning |", "|---|---|", *(f"| {a} | {b} |" for a, b in escaped)]
    return "\n".join(lines)


if __name__ == "__main__":
    DOCUMENT.write_text(document())
