"""The command `why`: explains why a job is not running."""

from __future__ import annotations

from uuid import UUID

import click

from faultline.cli.context import Context, session, with_lock_timeout
from faultline.cli.output import duration, json_option, one_line, print_json
from faultline.errors import UnknownJob
from faultline.explanation import Answer, explain, situation_of
from faultline.postgres.sessions import run_reads
from faultline.wording import plain


@click.command()
@click.argument("job", type=click.UUID)
@json_option
@click.pass_obj
def why(context: Context, job: UUID, as_json: bool) -> None:
    """Explain why a job is not running."""
    with session(context) as conn, with_lock_timeout(conn):
        situation = run_reads(conn, situation_of(job))
    if situation is None:
        raise UnknownJob(f"there is no job {job}", hint="faultline jobs list")
    answer = explain(situation)
    if as_json:
        print_json(answer)
    else:
        _print_answer(answer)


def _print_answer(answer: Answer) -> None:
    click.secho(plain(answer.answer), bold=True)
    for name, value in answer.facts.items():
        if name.endswith(("_seconds", "_seconds_ago")):
            name = name.replace("_seconds", "")
            value = duration(value) if value >= 0 else f"-{duration(-value)}"
        for line in value if isinstance(value, list) else [value]:
            click.echo(f"  {name.replace('_', ' '):22}{one_line(line)}")
    for line in answer.advice:
        click.echo(f"→ {plain(line)}")
