"""The commands `epoch show` and `epoch bump`."""

from __future__ import annotations

import click

from faultline.cli.context import Context
from faultline.cli.output import print_json, print_table
from faultline.cli.session import audited, session
from faultline.postgres.sessions import run
from faultline.statements import epochs as epochs


@click.group()
def epoch() -> None:
    """Which history of the database tokens belong to: after a failover or a restore, a new one."""


@epoch.command()
@click.option("--json", "as_json", is_flag=True)
@click.pass_obj
def show(context: Context, as_json: bool) -> None:
    """The current epoch, how it began, and whether this is still the server that it began on."""
    with session(context) as conn:
        status = run(conn, epochs.status())
        history = run(conn, epochs.history())
    if as_json:
        print_json({"status": status, "history": history})
        return
    print_table(
        ["epoch", "began", "cause", "timeline", "system identifier"],
        [
            [
                str(each.epoch),
                f"{each.began_at:%Y-%m-%d %H:%M:%S %Z}",
                each.cause,
                _seen(each.timeline),
                _seen(each.system_identifier),
            ]
            for each in history
        ],
    )
    click.echo(said(status))


def _seen(number: int | None) -> str:
    return "not to be seen" if number is None else str(number)


def said(status: epochs.EpochStatus) -> str:
    """Where the server stands towards its epoch, in a sentence."""
    here = status.here
    if status.is_refused and status.known.system_identifier not in (None, here.system_identifier):
        return (
            f"this server is {here.system_identifier}: the database was restored here from another,"
            " and no job is claimed until: faultline epoch bump"
        )
    if status.is_refused and status.known.database_oid not in (None, here.database_oid):
        return (
            f"this database has oid {here.database_oid}: it is a copy, or was restored from a dump, and"
            " no job is claimed until: faultline epoch bump"
        )
    if status.is_refused:
        return (
            "this server was restored from a base backup, and no job is claimed until:"
            " faultline epoch bump"
        )
    if status.is_due:
        return (
            f"this server is on timeline {here.timeline}: the next claim begins an epoch of its own"
        )
    if status.is_standby:
        return "this is a standby: it has no timeline of its own until it is promoted"
    if here.timeline is None:
        return "the server does not show its timeline: after a failover run faultline epoch bump by hand"
    return "this is the server that it began on"


@epoch.command()
@click.option("--reason", help="Kept with the epoch, for whoever looks later.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def bump(context: Context, reason: str | None, yes: bool) -> None:
    """Begin a new epoch by hand: this database goes on, and no other copy of it does.

    Needed after a restore, before workers may claim. Harmless at any other time: jobs that run go on,
    and tokens continue from a higher number.
    """
    with session(context) as conn:
        status = run(conn, epochs.status())
        if status.is_refused and not yes:
            click.echo(said(status))
            click.confirm(
                "Is the original gone for good, so that none of its workers is still at work?",
                abort=True,
            )
        with audited(conn, "bump epoch"):
            number = run(conn, epochs.bump(reason))
    click.echo(f"epoch {number} has begun")
