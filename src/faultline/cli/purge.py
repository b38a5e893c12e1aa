"""The command `purge`: removes records whose retention has passed."""

from __future__ import annotations

import time

import click

from faultline.cli.context import Context, audited, session
from faultline.cli.output import count, json_option, print_json
from faultline.cli.service_options import retention_options
from faultline.config import Retention
from faultline.postgres.sessions import run
from faultline.statements.retention import REST_FACTOR, Sweep


@click.command()
@click.option("--dry-run", is_flag=True, help="Count the records, but remove nothing.")
@json_option
@retention_options
@click.pass_obj
def purge(context: Context, dry_run: bool, as_json: bool, retention: Retention) -> None:
    """Remove records whose retention has passed.

    The leading reconciler does this continuously. The command removes small batches with pauses in
    between and skips locked rows, so it may run at any time.
    """
    sweep = Sweep(retention, dry_run=dry_run)
    with session(context) as conn:
        while (statement := sweep.next_statement) is not None:
            started = time.monotonic()
            with audited(conn, "purge"):
                sweep.add(run(conn, statement))
            time.sleep(REST_FACTOR * (time.monotonic() - started))
    purged = sweep.purged
    if as_json:
        found = {
            "succeeded": purged.succeeded,
            "failed": purged.failed,
            "ledger": purged.entries,
            "audit": purged.audit,
            "unique_keys": purged.unique_keys,
            "firings": purged.firings,
        }
        print_json({"dry_run": dry_run, **found})
        return
    click.echo(
        f"{'would remove' if dry_run else 'removed'} {count(purged.succeeded, 'succeeded job')},"
        f" {count(purged.failed, 'failed job')}, {_entries(purged.entries)} of the ledger,"
        f" {_entries(purged.audit)} of the audit log, {count(purged.unique_keys, 'unique key')}"
        f" and {count(purged.firings, 'firing')}"
    )


def _entries(number: int) -> str:
    return f"{number:,} {'entry' if number == 1 else 'entries'}"
