"""Command groups that import a command's module only when the command is called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

import click

from faultline.cli.global_options import accept_global_options
from faultline.cli.usage_errors import UnknownCommand
from faultline.errors import FaultlineError
from faultline.suggestions import close_matches

ENTRY_POINTS = "faultline.commands"


class CommandNotInstalled(FaultlineError):
    """The command belongs to a distribution that is not installed."""

    code = "command_not_installed"


class LazyGroup(click.Group):
    """A group of commands that are given as {name: "module" or "module:attribute"}.

    `elsewhere` lists commands of other distributions as {name: requirement to install}. They are found
    by the entry points of the group `faultline.commands`.
    """

    def __init__(
        self,
        *args: Any,
        modules: Mapping[str, str],
        elsewhere: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._modules = modules
        self._elsewhere = elsewhere or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._modules, *self._elsewhere]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._elsewhere:
            return _from_entry_point(cmd_name, self._elsewhere[cmd_name])
        if cmd_name not in self._modules:
            return None
        module, _, attribute = self._modules[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute or cmd_name)
        return accept_global_options(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        is_unknown = name not in self._modules and name not in self._elsewhere
        if is_unknown and not name.startswith("-") and not ctx.resilient_parsing:
            found = close_matches(name, self.list_commands(ctx)) or self._subcommands(ctx, name)
            raise UnknownCommand(name, found, ctx)
        return super().resolve_command(ctx, args)

    def _subcommands(self, ctx: click.Context, name: str) -> list[str]:
        """Subcommands that resemble `name`, such as `jobs retry` for `retry`."""
        groups = {each: self.get_command(ctx, each) for each in self._modules}
        return [
            f"{group} {inner}"
            for group, command in groups.items()
            if isinstance(command, click.Group)
            for inner in close_matches(name, command.list_commands(ctx))
        ]


def _from_entry_point(name: str, requirement: str) -> click.Command:
    for entry_point in entry_points(group=ENTRY_POINTS, name=name):
        command: click.Command = entry_point.load()
        return accept_global_options(command)
    return _not_installed(name, requirement)


def _not_installed(name: str, requirement: str) -> click.Command:
    """A command that accepts any arguments and reports which distribution to install."""

    def refuse() -> None:
        raise CommandNotInstalled(
            f"`faultline {name}` is not installed", hint=f"pip install '{requirement}'"
        )

    return click.Command(
        name,
        callback=refuse,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        add_help_option=False,
        help=f"Not installed: pip install '{requirement}'.",
    )
