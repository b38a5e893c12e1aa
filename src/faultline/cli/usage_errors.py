"""Shows wrong command lines and refusals of the system like all other errors."""

from __future__ import annotations

import click

from faultline.errors import FaultlineError


class UsageProblem(FaultlineError):
    """An unknown command, option or value on the command line, or a missing one."""

    code = "usage"


def usage_problem(error: click.ClickException) -> UsageProblem:
    """The error of click with a code, and the command whose help says more."""
    message = " ".join(error.format_message().split()).removesuffix(".")
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else ""
    return UsageProblem(message[:1].lower() + message[1:], hint=f"{path or 'faultline'} --help")


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
