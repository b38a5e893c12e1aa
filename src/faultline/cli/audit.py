"""The command `audit`: lists operators' actions on jobs, queues, workers and keys."""

from __future__ import annotations

import click

from faultline.cli.context import Context, session
from faultline.cli.output import json_option, one_line, print_json, print_table
from faultline.postgres.sessions import run
from faultline.statements.audit import AuditFilter
from faultline.statements.audit import page as audit_page


@click.command()
@click.option("--actor", help="List only actions of this key, user or role.")
@click.option("--action", help="List only this action, such as cancel, pause or 'create key'.")
@click.option("--object", "target", help="List only actions on this object, such as 'queue mail'.")
@click.option("--address", help="List only actions from this address.")
@click.option(
    "--result",
    type=click.Choice(["done", "unchanged", "refused"]),
    help="List only actions with this result.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    help="How many entries to list.",
)
@click.option(
    "--before", type=int, metavar="ID", help="List the page after the one that ended with this id."
)
@json_option
@click.pass_obj
def audit(
    context: Context,
    actor: str | None,
    action: str | None,
    target: str | None,
    address: str | None,
    result: str | None,
    limit: int,
    before: int | None,
    as_json: bool,
) -> None:
    """List operators' actions and refused keys, newest first."""
    wanted = AuditFilter(actor, action, target, result, address)
    with session(context) as conn:
        page = run(conn, audit_page(wanted, limit=limit, before=before))
    if as_json:
        print_json(page)
        return
    if not page.audit:
        click.echo("no such entries")
    else:
        print_table(
            ["id", "time", "actor", "from", "action", "object", "result", "detail"],
            [
                [
                    *(entry.id, f"{entry.at:%Y-%m-%d %H:%M:%S}"),
                    f"{entry.actor_kind} {entry.actor}",
                    entry.address or "",
                    entry.action,
                    entry.object or "",
                    f"{entry.result} {entry.code}" if entry.code else entry.result,
                    one_line(
                        f"{entry.times} times" if entry.times > 1 else (entry.detail or ""), 60
                    ),
                ]
                for entry in page.audit
            ],
        )
    if page.next is not None:
        click.echo(f"older entries: faultline audit --before {page.next}")
