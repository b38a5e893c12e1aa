"""The command `verify`: checks the invariants on the stored records."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.text import Text

from faultline.cli.context import Context, session
from faultline.cli.output import json_option, print_json, print_table
from faultline.postgres.sessions import run
from faultline.statements.invariants import INVARIANTS, Finding, Invariant, check

_SHOWN_EVIDENCE = 3


@click.command()
@json_option
@click.pass_obj
def verify(context: Context, as_json: bool) -> None:
    """Check every invariant on the stored records.

    The exit code is 1 if one is violated.
    """
    with session(context) as conn:
        progress = track(
            INVARIANTS,
            description="checking",
            console=Console(stderr=True),
            transient=True,
            disable=as_json or not sys.stderr.isatty(),
        )
        results = [(invariant, run(conn, check(invariant))) for invariant in progress]
    violated = [invariant.name for invariant, findings in results if findings]
    if as_json:
        invariants = [_result(invariant, findings) for invariant, findings in results]
        print_json({"ok": not violated, "invariants": invariants})
    else:
        print_table(["", "claim", "violations"], [_row(*result) for result in results])
        held = f"{len(results) - len(violated)} of {len(results)} invariants hold"
        click.secho(held, fg="red" if violated else "green", bold=True)
        if violated:
            click.echo("→ save the evidence with pg_dump --schema=faultline, then report it")
    if violated:
        sys.exit(1)


def _result(invariant: Invariant, findings: list[Finding]) -> dict[str, Any]:
    return {
        "name": invariant.name,
        "claim": invariant.claim,
        "ok": not findings,
        "violations": len(findings),
        "evidence": findings,
    }


def _row(invariant: Invariant, findings: list[Finding]) -> list[str | Text]:
    if not findings:
        return [Text("ok", style="green"), invariant.claim, ""]
    shown = [f"{found.job_id}: {found.evidence}" for found in findings[:_SHOWN_EVIDENCE]]
    if more := len(findings) - len(shown):
        shown.append(f"and at least {more} more")
    return [Text("VIOLATED", style="bold red"), invariant.claim, "\n".join(shown)]
