"""Progress of a run: a bar, the current step, and a line for each sample."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from benchmarks.comparison import Sample, Turn
from benchmarks.measurement import number
from benchmarks.workloads import MEASURES


class Pace:
    """Estimates the time left from the planned times and how long turns really take."""

    def __init__(self, planned_seconds: float, seconds_after: float) -> None:
        self._left, self._after = planned_seconds, seconds_after
        self._done = 0.0
        self._began = time.monotonic()

    def left_after(self, planned_seconds: float) -> float:
        """Return the seconds left after a turn that was planned to take so long."""
        self._done += planned_seconds
        self._left -= planned_seconds
        return self._left * (time.monotonic() - self._began) / self._done + self._after


class TerminalDisplay:
    """A live progress bar on a terminal, and only lines in a log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, left="")
        self._pace = Pace(0.0, 0.0)
        self._turns = self._taken = 0

    def __enter__(self) -> TerminalDisplay:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def show(self, text: str) -> None:
        self._bar.update(self._task, description=text)
        if not self._console.is_terminal:
            self._console.print(text)

    def show_plan(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._console.print(f"  {line}", markup=False)

    def start(self, turns: int, seconds: float, seconds_after: float) -> None:
        """Begin to show the time left; sections that follow take `seconds_after`."""
        self._turns, self._pace = turns, Pace(seconds, seconds_after)
        self._bar.reset(self._task, total=turns)

    def show_turn(self, turn: Turn) -> None:
        what = f"{turn.workload.name}: {turn.peer.title} (repeat {turn.repeat + 1})"
        self._bar.update(self._task, description=what)

    def show_sample(self, sample: Sample, planned_seconds: float) -> None:
        self._taken += 1
        left = self._pace.left_after(planned_seconds)
        about = f"about {left / 60:.0f} min left" if left >= 60 else "less than a minute left"
        self._bar.update(self._task, advance=1, left=about)
        values = ", ".join(
            f"{number(value)} {MEASURES[name].unit}" for name, value in sample.values.items()
        )
        problem = f"[red]{escape(sample.problem)}[/red]" if sample.problem else ""
        progress = f"[dim]{self._taken}/{self._turns}, {about}[/dim]"
        self._console.print(
            f"  {sample.workload:15} {sample.peer:16} {values}{problem}  {progress}"
        )
