"""The commands `epoch show` and `epoch bump`."""

from __future__ import annotations

import click

from faultline.cli.context import Context, audited, session
from faultline.cli.output import json_option, print_json, print_table
from faultline.postgres.sessions import run
from faultline.statements import epochs as epochs


@click.group()
def epoch() -> None:
    """Show the epoch of fencing tokens, or begin a new one.

    A new epoch begins after a failover or a restore: no token of the old one is issued again.
    """


@epoch.command()
@json_option
@click.pass_obj
def show(context: Context, as_json: bool) -> None:
    """Show all epochs, and whether this server is in the current one."""
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
                _format_number(each.timeline),
                _format_number(each.system_identifier),
            ]
            for each in history
        ],
    )
    click.echo(describe(status))


def _format_number(number: int | None) -> str:
    return "not visible" if number is None else str(number)


def describe(status: epochs.EpochStatus) -> str:
    """One sentence on whether the server is still in its epoch, and what to do if not."""
    here = status.here
    if status.is_refused and status.known.system_identifier not in (None, here.system_identifier):
        return (
            f"this server is {here.system_identifier}: the database was restored here from another server,"
            " and no job is claimed until you run: faultline epoch bump"
        )
    if status.is_refused and status.known.database_oid not in (None, here.database_oid):
        return (
            f"this database has oid {here.database_oid}: it is a copy, or was restored from a dump, and"
            " no job is claimed until you run: faultline epoch bump"
        )
    if status.is_refused:
        return (
            "this server was restored from a base backup, and no job is claimed until you run:"
            " faultline epoch bump"
        )
    if status.is_due:
        return f"this server is on timeline {here.timeline}: the next claim begins a new epoch"
    if status.is_standby:
        return "this is a standby: it has no timeline of its own until it is promoted"
    if here.timeline is None:
        return "the server's timeline is not visible: after each failover run faultline epoch bump"
    return "this is the server on which the epoch began"


@epoch.command()
@click.option("--reason", help="Stored with the epoch.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@click.pass_obj
def bump(context: Context, reason: str | None, yes: bool, as_json: bool) -> None:
    """Begin a new epoch by hand, after a restore.

    Workers claim nothing from a restored database until then. Afterwards only this copy of the database
    may be used. At any other time the command is harmless: running jobs continue, and tokens continue
    from a higher number.
    """
    with session(context) as conn:
        status = run(conn, epochs.status())
        if status.is_refused and not yes:
            click.echo(describe(status), err=as_json)
            click.confirm(
                "Is the original database gone for good, and have all of its workers stopped?",
                abort=True,
                err=as_json,
            )
        with audited(conn, "bump epoch"):
            number = run(conn, epochs.bump(reason))
    if as_json:
        print_json({"epoch": number})
    else:
        click.echo(f"epoch {number} has begun")
