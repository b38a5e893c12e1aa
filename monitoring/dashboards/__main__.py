"""Writes the Grafana dashboards; `--check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from monitoring.dashboards import DASHBOARDS

GRAFANA = Path(__file__).parents[1] / "grafana"


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 if a file is out of date.")
def main(check: bool) -> None:
    """Write monitoring/grafana/*.json from the dashboards in this package."""
    wanted = {GRAFANA / dashboard.file_name: dashboard.as_text() for dashboard in DASHBOARDS}
    outdated = [path for path, text in wanted.items() if _text_of(path) != text]
    leftover = sorted(set(GRAFANA.glob("*.json")) - set(wanted))
    for path in outdated:
        click.echo(f"{'out of date' if check else 'written'}: {path.name}")
        if not check:
            path.write_text(wanted[path])
    for path in leftover:
        click.echo(f"{'belongs to no dashboard' if check else 'removed'}: {path.name}")
        if not check:
            path.unlink()
    if check and (outdated or leftover):
        click.echo("try: python -m monitoring.dashboards")
        sys.exit(1)


def _text_of(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    main()
