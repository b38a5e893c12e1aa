"""Progress of a run: a bar, the current step, and a line for each sample."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from benchmarks.comparison import Sample, Turn
from benchmarks.measurement import number
from benchmarks.workloads import MEASURES


class TerminalDisplay:
    """A live progress bar on a terminal, and only lines in a log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> TerminalDisplay:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def show(self, text: str) -> None:
        self._bar.update(self._task, description=text)
        if not self._console.is_terminal:
            self._console.print(text)

    def start(self, turns: int) -> None:
        self._bar.reset(self._task, total=turns)

    def show_turn(self, turn: Turn) -> None:
        what = f"{turn.workload.name}: {turn.peer.title} (repeat {turn.repeat + 1})"
        self._bar.update(self._task, description=what)

    def show_sample(self, sample: Sample) -> None:
        self._bar.advance(self._task)
        values = ", ".join(
            f"{number(value)} {MEASURES[name].unit}" for name, value in sample.values.items()
        )
        problem = f"[red]{escape(sample.problem)}[/red]" if sample.problem else ""
        self._console.print(f"  {sample.workload:15} {sample.peer:16} {values}{problem}")
