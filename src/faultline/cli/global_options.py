"""The options that every command accepts, before and after its name."""

from __future__ import annotations

from typing import Any, NamedTuple

import click


class _Specification(NamedTuple):
    names: tuple[str, ...]
    attributes: dict[str, Any]
    help_before: str  # in `faultline --help`
    help_after: str  # in the help of each command, which need not repeat everything


_OPTIONS = (
    _Specification(
        ("--app",),
        {"metavar": "MODULE:NAME"},
        "The Faultline object of your application. Default: FAULTLINE_APP, or `app` in [tool.faultline] of"
        " the nearest pyproject.toml.",
        "Your Faultline object. Default: FAULTLINE_APP.",
    ),
    _Specification(
        ("--database-url",),
        {"metavar": "URL"},
        "The PostgreSQL to use. Default: DATABASE_URL, the file that DATABASE_URL_FILE names, the URL of"
        " the app, or an embedded server for development.",
        "The PostgreSQL to use. Default: DATABASE_URL.",
    ),
    _Specification(
        ("--log-format",),
        {"type": click.Choice(["auto", "json", "console"])},
        "How events are written to stderr. Default: auto, which is text on a terminal and JSON lines"
        " elsewhere.",
        "How events are written to stderr.",
    ),
    _Specification(
        ("-v", "--verbose"),
        {"is_flag": True},
        "Also log routine events, such as claims and commits.",
        "Also log routine events.",
    ),
)
_META = "faultline.global_options"
_ONLY_BEFORE: dict[str, dict[str, Any]] = {
    "--app": {"envvar": "FAULTLINE_APP"},
    "--log-format": {"default": "auto"},
}


class GlobalOption(click.Option):
    """A global option after the name of a command; it overrides one before the name."""


def leading_options() -> list[click.Option]:
    """The global options before the name of a command."""
    return [
        click.Option(
            list(each.names),
            help=each.help_before,
            **each.attributes,
            **_ONLY_BEFORE.get(each.names[0], {}),
        )
        for each in _OPTIONS
    ]


def accept_global_options(command: click.Command) -> click.Command:
    """Let a command, and each command of a group, accept the global options."""
    own = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    for each in _OPTIONS:
        if own.isdisjoint(each.names):
            command.params.append(
                GlobalOption(
                    list(each.names),
                    help=each.help_after,
                    default=None,
                    expose_value=False,
                    callback=_override,
                    **each.attributes,
                )
            )
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            accept_global_options(inner)
    return command


def _override(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Set the value in the context, which `faultline health` does not have."""
    if not value:
        return
    if ctx.resilient_parsing:
        ctx.meta[f"{_META}.{param.name}"] = value
    elif ctx.obj is not None:
        ctx.obj.override(str(param.name), value)


def given_options(ctx: click.Context) -> dict[str, Any]:
    """The global options on a command line that is being completed, by name."""
    before = ctx.find_root().params
    names = (str(option.name) for option in leading_options())
    return {name: ctx.meta.get(f"{_META}.{name}") or before.get(name) for name in names}
