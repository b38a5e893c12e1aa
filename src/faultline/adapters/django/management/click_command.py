"""Runs a command of `faultline` as a command of manage.py, with the same options."""

from __future__ import annotations

import contextlib
import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from typing import Any

import click
from django.core.management.base import BaseCommand, CommandError

from faultline.adapters.django.configuration import read_configuration
from faultline.cli.main import cli
from faultline.errors import FaultlineError, InvalidSettings
from faultline.suggestions import did_you_mean

# The project's settings say which application and which database, and Django has a --version.
_NOT_OFFERED = frozenset({"app", "database_url"})


class ClickCommand(BaseCommand):
    """A command of manage.py; subclasses name the command of `faultline`."""

    name: str

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--database",
            choices=read_configuration().databases,
            help="The alias of the database. If absent, FAULTLINE['DATABASE'].",
        )
        for option in self.options():
            names = [each for each in option.opts if each != "-v"]  # Django's --verbosity
            how: dict[str, Any] = {"dest": option.name, "default": None, "help": _help(option)}
            if option.is_flag:
                parser.add_argument(*names, action="store_true", **how)
            elif option.multiple:
                parser.add_argument(*names, action="append", metavar="VALUE", **how)
            else:
                parser.add_argument(*names, metavar="VALUE", **how)

    def options(self) -> list[click.Option]:
        command = cli.get_command(click.Context(cli), self.name)
        found = command.params if command is not None else []
        options = [each for each in found if isinstance(each, click.Option)]
        return [each for each in options if not each.hidden and each.name not in _NOT_OFFERED]

    def defaults(self) -> Mapping[str, Any]:
        """Values for options that are not given."""
        return {}

    def leading(self, database: str | None) -> list[str]:
        """The global options for this project."""
        alias = database or read_configuration().database
        return ["--app", f"faultline.adapters.django.databases:{alias}"]

    def trailing(self) -> list[str]:
        """Words that follow the options."""
        return []

    def handle(self, *_: Any, **given: Any) -> None:
        defaults = self.defaults()
        words = self.leading(given["database"])
        words.append(self.name)
        for option in self.options():
            value = given.get(str(option.name))
            if value is None or value is False:
                value = defaults.get(str(option.name))
            words += _words(option, value)
        _run([*words, *self.trailing()])


def _help(option: click.Option) -> str:
    return (option.help or "").replace("%", "%%")


def _words(option: click.Option, value: Any) -> list[str]:
    name = next(each for each in option.opts if each.startswith("--"))
    if value is None or value is False:
        return []
    if option.is_flag:
        return [name]
    if option.multiple:
        return [word for each in value for word in (name, str(each))]
    return [name, ",".join(value) if isinstance(value, list | tuple) else str(value)]


def _run(words: list[str]) -> None:
    """Run `faultline` in this process; an error is one of manage.py."""
    with _as_program(words):
        try:
            cli(words, standalone_mode=False)
        except click.ClickException as error:
            raise CommandError(error.format_message()) from error
        except FaultlineError as error:
            raise CommandError(f"[{error.code}] {error}") from error
        except SystemExit as ended:
            if ended.code:
                raise


@contextlib.contextmanager
def _as_program(words: list[str]) -> Iterator[None]:
    """A command starts processes by `sys.argv`; they must find the project's modules."""
    before, path = sys.argv, os.environ.get("PYTHONPATH")
    sys.argv = ["faultline", *words]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[0], path]))
    try:
        yield
    finally:
        sys.argv = before
        os.environ.pop("PYTHONPATH")
        if path is not None:
            os.environ["PYTHONPATH"] = path


def checked_defaults(given: Mapping[str, Any], options: list[click.Option]) -> Mapping[str, Any]:
    """FAULTLINE["WORKER"], refused if it names an option that is none."""
    known = [str(option.name) for option in options]
    for name in given:
        if name not in known:
            raise InvalidSettings(
                f"FAULTLINE['WORKER'] has an unknown option {name!r}",
                hint=did_you_mean(name, known) or f"the options are {', '.join(known)}",
            )
    return given
