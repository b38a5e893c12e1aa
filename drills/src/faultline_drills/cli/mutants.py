"""`faultline drill mutants`: inserts bugs and checks that each is found."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from faultline.cli.context import Context
from faultline.errors import InvalidInput
from faultline.suggestions import did_you_mean
from faultline_drills.cli.scratch_server import drill_server
from faultline_drills.cli.shared_options import json_option
from faultline_drills.cli.terminal import progress_bar, table_console
from faultline_drills.mutants.catalogue import MUTANTS
from faultline_drills.mutants.kill_matrix import as_facts, as_markdown
from faultline_drills.mutants.mutant import SEED, Mutant
from faultline_drills.mutants.mutation_run import MutantResult, layers_of, run_layer
from faultline_drills.provenance import provenance, server_version


@click.command()
@click.argument("names", nargs=-1, metavar="[MUTANT]...")
@click.option(
    "--list", "only_list", is_flag=True, help="List the mutants and the layer that must find each."
)
@click.option(
    "--save-to",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for mutants.json, the kill matrix.  [default: reports/latest, if all mutants run]",
)
@click.option(
    "--markdown",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the kill matrix to this Markdown file.",
)
@json_option
@click.pass_obj
def mutants(
    context: Context,
    names: Sequence[str],
    only_list: bool,
    save_to: Path | None,
    markdown: Path | None,
    as_json: bool,
) -> None:
    """Insert bugs into a copy of Faultline; each must be found.

    Each mutant names a layer, a command of `faultline drill`, that must break a rule on the changed
    copy. First every layer runs on an unchanged copy, where it must be valid: a layer that fails there
    would "find" anything.

    The exit code is 0 if all mutants are found, 1 if one is not, and 2 if a layer fails by itself.
    """
    chosen = _chosen(names)
    console = Console(highlight=False, stderr=as_json, soft_wrap=True)
    if only_list:
        _list(table_console(), chosen)
        return
    controls: list[MutantResult] = []
    kills: list[MutantResult] = []
    layers = layers_of(chosen)
    with ExitStack() as stack:
        server_url = stack.enter_context(drill_server(context.given_url))
        command = " ".join(["faultline drill mutants", *names])
        command += f" --markdown {markdown}" if markdown is not None else ""
        # Read now: the files may be edited while this runs, but the code that runs is loaded.
        origin = provenance(command, seed=SEED, postgres=server_version(server_url))
        step = stack.enter_context(_display(console, len(layers) + len(chosen)))
        for layer in layers:
            step(f"{layer.name} on an unchanged copy")
            control = run_layer(None, layer, server_url=server_url)
            controls.append(control)
            if control.killed:
                console.print(
                    f"  [yellow]{layer.name} fails on an unchanged copy[/]: {control.how}"
                )
        for mutant in chosen:
            step(mutant.name)
            kills.append(run_layer(mutant, mutant.killed_by, server_url=server_url))
            _print_result(console, kills[-1])
    facts = as_facts(kills, controls, origin)
    if save_to is not None or not names:
        folder = save_to or Path("reports", "latest")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "mutants.json").write_text(json.dumps(facts, indent=2) + "\n")
    if as_json:
        print(json.dumps(facts))
    if markdown is not None:
        markdown.write_text(as_markdown(kills, origin))
    found = sum(kill.killed for kill in kills)
    console.print(f"\n{found}/{len(kills)} mutants killed")
    is_sound = not any(control.killed for control in controls)
    sys.exit(2 if not is_sound else 0 if found == len(kills) else 1)


def _chosen(names: Sequence[str]) -> list[Mutant]:
    known = {mutant.name: mutant for mutant in MUTANTS}
    unknown = [name for name in names if name not in known]
    if unknown:
        hint = did_you_mean(unknown[0], known) or "faultline drill mutants --list names them"
        raise InvalidInput(f"there is no mutant {unknown[0]!r}", hint=hint)
    return [known[name] for name in names] or list(MUTANTS)


def _list(console: Console, chosen: Sequence[Mutant]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    for mutant in chosen:
        table.add_row(f"[bold]{mutant.name}[/]", escape(mutant.bug), mutant.killed_by.name)
    console.print(table)


def _print_result(console: Console, kill: MutantResult) -> None:
    mark = "[green]killed[/]  " if kill.killed else "[bold red]survived[/]"
    console.print(
        f"  {mark} {kill.mutant:<32} [dim]{kill.layer}, {kill.seconds:.1f} s: {escape(kill.how)}[/]"
    )


@contextmanager
def _display(console: Console, total: int) -> Iterator[Callable[[str], None]]:
    progress = progress_bar(console, "{task.description}")
    with progress:
        task = progress.add_task("", total=total, completed=-1)

        def step(description: str) -> None:
            progress.update(task, advance=1, description=description)

        yield step
