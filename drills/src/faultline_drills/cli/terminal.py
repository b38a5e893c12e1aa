"""Terminal output of the commands: consoles, progress bars, exit codes."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from faultline_drills.judging.checker import DrillVerdict

VERDICT_STYLES: dict[str, str] = {
    DrillVerdict.VALID: "green",
    DrillVerdict.INVALID: "bold red",
    DrillVerdict.UNKNOWN: "yellow",
}
_PIPE_WIDTH = 240  # where a program reads the output, a row is not folded


def exit_code(*verdicts: DrillVerdict) -> int:
    """1 if any drill broke a rule, else 2 if any drill showed nothing, else 0."""
    if DrillVerdict.INVALID in verdicts:
        return 1
    return 2 if not verdicts or DrillVerdict.UNKNOWN in verdicts else 0


def table_console(*, stderr: bool = False) -> Console:
    """A console for tables; in a pipe it is wide enough for one line per row."""
    console = Console(highlight=False, stderr=stderr)
    if console.is_terminal:
        return console
    return Console(highlight=False, stderr=stderr, width=_PIPE_WIDTH)


def progress_bar(console: Console, *texts: str) -> Progress:
    """A bar followed by rich's templates, such as "{task.description}"."""
    return Progress(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        *map(TextColumn, texts),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
