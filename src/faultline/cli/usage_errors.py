"""Shows a wrong command line in the form of all other errors."""

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


def is_help(error: click.ClickException) -> bool:
    """Whether a group was called without a command, which prints its help."""
    kind = getattr(click.exceptions, "NoArgsIsHelpError", ())  # absent before click 8.2
    return isinstance(error, kind)
