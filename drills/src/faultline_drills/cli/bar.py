"""The bar that drills move along, where somebody is looking."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def progress_bar(console: Console, *texts: str) -> Progress:
    """`texts` stand behind it, in the words of rich: "{task.description}"."""
    return Progress(
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        *map(TextColumn, texts),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
