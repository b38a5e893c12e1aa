"""Checks the protocol's model: every search must have its expected result.

    python model/check.py                    all searches; rewrites the tables in docs/model.md
    python model/check.py --only NO_FENCE    searches with this flag; writes no file
    python model/check.py --story NO_FENCE   the same, with the trace of what was found
    python model/check.py --quick            a small search, a few faults and situations
    python model/check.py --deep             larger searches of the protocol: minutes, and 3 GB

Exit code 0: all as expected. 1: an unexpected result. 2: spin or a C compiler is missing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from pan import Result, Tools, Unusable, find_tools, run
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from searches import ALL, DEEP, QUICK, Kind, Search

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "model.md"
BEGIN, END = "<!-- results -->", "<!-- /results -->"
MAX_JOBS = 2  # the largest search takes half a gigabyte


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    console = Console()
    flag = options.story or options.only
    searches = DEEP if options.deep else QUICK if options.quick else ALL
    chosen = [search for search in searches if _has(search, flag)]
    if not chosen:
        console.print(f"no search has the flag {flag}")
        return 2
    try:
        results = check(find_tools(), chosen, jobs=options.jobs, console=console)
    except Unusable as error:
        print(f"the model was not checked: {error}", file=sys.stderr)
        return 2
    console.print(_table(results))
    if options.story:
        for result in results:
            console.print(f"\n{result.search.name}: {result.violated or 'nothing'} found")
            console.print("\n".join(f"  {line}" for line in result.story), highlight=False)
    surprises = [result for result in results if not result.is_as_expected]
    if len(results) == len(ALL) and not surprises:
        write_document(results)
        console.print(f"wrote {DOCUMENT.relative_to(DOCUMENT.parents[1])}")
    console.print(f"{len(results) - len(surprises)} of {len(results)} searches as expected")
    return 1 if surprises else 0


def check(tools: Tools, searches: Sequence[Search], *, jobs: int, console: Console) -> list[Result]:
    """Run the searches in parallel; return the results in their order."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with (
        tempfile.TemporaryDirectory(prefix="faultline-model-") as scratch,
        Progress(*columns, console=console, transient=True) as progress,
        ThreadPoolExecutor(jobs) as pool,
    ):
        bar = progress.add_task("searching", total=len(searches))
        futures = {}
        for number, search in enumerate(searches):
            folder = Path(scratch, str(number))
            folder.mkdir()
            futures[pool.submit(run, tools, search, folder)] = number
        results: dict[int, Result] = {}
        try:
            for future in as_completed(futures):
                result = future.result()
                results[futures[future]] = result
                progress.update(bar, advance=1, description=result.search.name[:40])
        except BaseException:  # Ctrl-C too: start no more searches
            pool.shutdown(cancel_futures=True)
            raise
    return [results[number] for number in range(len(searches))]


def write_document(results: Sequence[Result]) -> None:
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{markdown(results)}{END}{after}")


def markdown(results: Sequence[Result]) -> str:
    """The tables, without durations, so that the same model gives the same text."""
    return "".join(line + "\n" for line in _markdown_lines(results))


def _markdown_lines(results: Sequence[Result]) -> Iterator[str]:
    for kind in Kind:
        yield ""
        yield f"### {_HEADINGS[kind]}"
        yield ""
        yield "| flags | meaning | must find | found | states | depth |"
        yield "|---|---|---|---|---:|---:|"
        for result in results:
            if result.search.kind is kind:
                search = result.search
                flags = " ".join(f"`{flag}`" for flag in search.flags) or "(none)"
                yield (
                    f"| {flags} | {search.meaning} | {_found(search.violates)} "
                    f"| {_found(result.violated)} | {result.states:,} | {result.depth:,} |"
                )
    yield ""


_HEADINGS = {
    Kind.HOLDS: "What holds",
    Kind.LIMIT: "What is not promised",
    Kind.MUTANT: "Planted faults",
    Kind.PROBE: "Situations that must occur",
}


def _found(violated: str | None) -> str:
    return "nothing" if violated is None else f"`{violated}`"


def _table(results: Sequence[Result]) -> Table:
    table = Table(title="the model of Faultline's protocol")
    for column in ("kind", "flags", "must find", "found"):
        table.add_column(column, overflow="fold")
    for column in ("states", "depth", "seconds"):
        table.add_column(column, justify="right")
    for result in results:
        search = result.search
        table.add_row(
            search.kind.value,
            search.name,
            search.violates or "nothing",
            result.violated or "nothing",
            f"{result.states:,}",
            f"{result.depth:,}",
            f"{result.seconds:.1f}",
            style=None if result.is_as_expected else "bold red",
        )
    return table


def _has(search: Search, flag: str | None) -> bool:
    return flag is None or flag in search.flags or flag in search.name.replace("=", " ").split()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Check the model of Faultline's protocol.")
    parser.add_argument("--only", metavar="FLAG", help="run the searches with this flag")
    parser.add_argument("--story", metavar="FLAG", help="as --only, and print what was found")
    parser.add_argument("--quick", action="store_true", help="a few searches, in seconds")
    parser.add_argument("--deep", action="store_true", help="larger searches of the protocol")
    parser.add_argument("--jobs", type=int, default=min(MAX_JOBS, os.cpu_count() or 1))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
