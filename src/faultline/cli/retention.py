"""The command `purge`, and the options that say for how long things are kept."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import click

from faultline.cli.context import Context
from faultline.cli.output import count, print_json
from faultline.cli.session import acting, session
from faultline.config import Retention
from faultline.postgres.sessions import run
from faultline.statements.retention import REST_FACTOR, Sweep

DEFAULTS = Retention()
Command = Callable[..., None]


def retention_options(command: Command) -> Command:
    """Give the command its options about retention, and their values as one: `retention`."""

    @functools.wraps(command)
    def with_retention(
        *args: Any,
        keep_succeeded_days: float,
        keep_failed_days: float,
        keep_ledger_days: float,
        keep_audit_days: float,
        **rest: Any,
    ) -> None:
        retention = Retention(
            succeeded_days=keep_succeeded_days,
            failed_days=keep_failed_days,
            ledger_days=keep_ledger_days,
            audit_days=keep_audit_days,
        )
        command(*args, retention=retention, **rest)

    for name, days in (
        ("audit", DEFAULTS.audit_days),
        ("ledger", DEFAULTS.ledger_days),
        ("failed", DEFAULTS.failed_days),
        ("succeeded", DEFAULTS.succeeded_days),
    ):
        add = click.option(
            f"--keep-{name}-days",
            default=days,
            show_default=True,
            envvar=f"FAULTLINE_KEEP_{name.upper()}_DAYS",
            help="0: for ever.",
        )
        with_retention = add(with_retention)
    return with_retention


@click.command()
@click.option("--dry-run", is_flag=True, help="Count what would go, and leave it.")
@click.option("--json", "as_json", is_flag=True)
@retention_options
@click.pass_obj
def purge(context: Context, dry_run: bool, as_json: bool, retention: Retention) -> None:
    """Remove what has been kept for long enough; the leading reconciler does it all the time.

    In batches, with rests in between, and without waiting for anyone's lock: it may run at any hour.
    """
    sweep = Sweep(retention, dry_run=dry_run)
    with session(context) as conn:
        while (statement := sweep.next_statement) is not None:
            started = time.monotonic()
            with acting(conn, "purge"):
                sweep.add(run(conn, statement))
            time.sleep(REST_FACTOR * (time.monotonic() - started))
    purged = sweep.purged
    if as_json:
        found = {
            "succeeded": purged.succeeded,
            "failed": purged.failed,
            "ledger": purged.entries,
            "audit": purged.audit,
        }
        print_json({"dry_run": dry_run, **found})
        return
    click.echo(
        f"{'would remove' if dry_run else 'removed'} {count(purged.succeeded, 'succeeded job')},"
        f" {count(purged.failed, 'failed job')}, {_entries(purged.entries)} of the ledger"
        f" and {_entries(purged.audit)} of the audit log"
    )


def _entries(number: int) -> str:
    return f"{number:,} {'entry' if number == 1 else 'entries'}"
