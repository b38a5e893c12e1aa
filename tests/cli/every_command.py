"""Every command, also those of the drills, by the words that call it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from faultline.cli.main import cli

Words = tuple[str, ...]


def _commands(group: click.Group, words: Words) -> Iterator[tuple[Words, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*words, name), command
        if isinstance(command, click.Group):
            yield from _commands(command, (*words, name))


EVERY_COMMAND = dict(_commands(cli, ()))
