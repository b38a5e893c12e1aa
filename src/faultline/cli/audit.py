"""The command `audit`: who did what to jobs, queues, workers and keys."""

from __future__ import annotations

import click

from faultline.cli.context import Context
from faultline.cli.output import one_line, print_json, print_table
from faultline.cli.session import session
from faultline.postgres.sessions import run
from faultline.statements.audit import AuditFilter
from faultline.statements.audit import page as audit_page


@click.command()
@click.option("--actor", help="Only what was done for this key, user or role.")
@click.option("--action", help="Only this action, such as cancel, pause or 'create key'.")
@click.option("--object", "target", help="Only this object, such as 'queue mail'.")
@click.option("--address", help="Only what came from this address.")
@click.option(
    "--result",
    type=click.Choice(["done", "unchanged", "refused"]),
    help="Only actions that ended like this.",
)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--before", type=int, metavar="ID", help="The last id of the page before.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
    """List what operators did and which keys were refused, newest first."""
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
        click.echo(f"older ones: faultline audit --before {page.next}")
