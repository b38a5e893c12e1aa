"""Shows wrong command lines and refusals of the system like all other errors."""

from __future__ import annotations

from collections.abc import Sequence

import click

from faultline.errors import FaultlineError
from faultline.suggestions import did_you_mean_one_of


class UsageProblem(FaultlineError):
    """An unknown command, option or value on the command line, or a missing one."""

    code = "usage"


def usage_problem(error: click.ClickException) -> UsageProblem:
    """The error of click with a code, and the command whose help says more."""
    # click repeats the possibilities of these in format_message().
    is_name = getattr(error, "possibilities", None) is not None
    message = error.message if is_name else error.format_message()
    message = " ".join(message.split()).removesuffix(".")
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else ""
    help_command = f"{path or 'faultline'} --help"
    question = did_you_mean_one_of(getattr(error, "possibilities", None) or ())
    hint = f"{question} See {help_command}" if question else help_command
    return UsageProblem(message[:1].lower() + message[1:], hint=hint)


class UnknownCommand(click.UsageError):
    """There is no such command; `possibilities` are those that resemble it."""

    def __init__(self, name: str, possibilities: Sequence[str], ctx: click.Context) -> None:
        super().__init__(f"No such command {name!r}.", ctx)
        self.possibilities = possibilities


class SystemProblem(FaultlineError):
    """The operating system refused something, usually to open a file."""

    code = "system_error"


def system_problem(error: OSError) -> SystemProblem:
    reason = error.strerror or str(error) or type(error).__name__
    where = f"{error.filename}: " if error.filename is not None else ""
    return SystemProblem(f"{where}{reason[:1].lower()}{reason[1:]}", hint=_ADVICE.get(type(error)))


_ADVICE: dict[type[OSError], str] = {
    FileNotFoundError: "create its folder, or name another one",
    PermissionError: "choose another place, or let its owner give you the right",
    IsADirectoryError: "name a file",
    NotADirectoryError: "name another folder",
    FileExistsError: "name another one",
}


def is_help(error: click.ClickException) -> bool:
    """Whether a group was called without a command, which prints its help."""
    kind = getattr(click.exceptions, "NoArgsIsHelpError", ())  # absent before click 8.2
    return isinstance(error, kind)
