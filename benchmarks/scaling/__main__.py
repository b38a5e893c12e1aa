"""The command `python -m benchmarks.scaling [--short] [PART …]`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from benchmarks.scaling.parts import PARTS, MeasurementOptions, measure
from benchmarks.scaling.section import TITLE, as_section
from benchmarks.section import Section
from benchmarks.servers import postgres_server
from faultline_drills.cli.scratch_server import cleanup_on_signals
from faultline_drills.provenance import provenance
from faultline_drills.report.plots import save


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(PARTS))
@click.option("--short", is_flag=True, help="Use smaller tables and fewer repeats: under a minute.")
@click.option(
    "--database-url", metavar="URL", help="A superuser's URL; without it, an embedded server."
)
@click.option("--seed", default=1, show_default=True, help="The seed for the order of the cases.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("reports/latest"),
    show_default=True,
)
def main(
    parts: tuple[str, ...], short: bool, database_url: str | None, seed: int, output: Path
) -> None:
    """Measure PARTS (default: all), and write scaling.json, scaling.md and the plots."""
    began = time.monotonic()

    def progress(line: str) -> None:
        click.echo(f"{time.monotonic() - began:6.1f} s  {line}", err=True)

    with cleanup_on_signals(), postgres_server(database_url) as server:
        options = MeasurementOptions(server.url, database_url is None, short, seed, progress)
        section = as_section(measure(options, parts or PARTS))
        command = " ".join(["python -m benchmarks.scaling", *sys.argv[1:]])
        origin = provenance(command, seed=seed, postgres=server.version)
    progress("done")
    facts = {**origin.facts(), "settings": server.settings, **section.json}
    _write(section, facts, origin.line, output)
    click.echo(section.markdown)
    for verdict in section.verdicts:
        click.echo(
            f"{verdict.what}: {verdict.measured:.2f}, required {verdict.wanted}: {verdict.outcome}"
        )


def _write(section: Section, facts: dict[str, object], origin: str, output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    (output / "scaling.json").write_text(json.dumps(facts, indent=2) + "\n")
    (output / "scaling.md").write_text(f"# {TITLE}\n\n{origin}\n\n{section.markdown}")
    for stem, figure in section.figures.items():
        save(figure, output, stem, origin)


if __name__ == "__main__":
    main()
