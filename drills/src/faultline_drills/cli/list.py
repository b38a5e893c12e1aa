"""`faultline drill list`: the scenarios and what each rehearses."""

from __future__ import annotations

import json

import click
from rich.markup import escape
from rich.table import Table

from faultline_drills.cli.shared_options import json_option
from faultline_drills.cli.terminal import table_console
from faultline_drills.scenario import all_scenarios


@click.command("list")
@json_option
def list_scenarios(as_json: bool) -> None:
    """List the scenarios, with the first sentence of each."""
    scenarios = all_scenarios().values()
    if as_json:
        facts = [
            {
                "name": each.name,
                "description": each.description,
                "shows": each.shows,
                "breaks_naive": each.breaks_naive,
                "own_server": each.own_server,
                "lacking": each.missing_requirement(),
            }
            for each in scenarios
        ]
        print(json.dumps(facts, indent=2))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    for each in scenarios:
        missing = each.missing_requirement()
        note = f" [yellow](cannot run here: {escape(missing)})[/]" if missing else ""
        table.add_row(f"[bold]{each.name}[/]", escape(each.title) + note)
    table_console().print(table)
