"""Plots of the comparison: bars with the range over repeats, the best first."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.patches import Rectangle
from matplotlib.ticker import NullFormatter

from benchmarks.measurement import number
from benchmarks.peer import FAULTLINE, Peer
from benchmarks.results import Participant, Results
from benchmarks.workloads import MEASURES
from faultline_drills.report.plots import FAINT, INK, annotate_origin, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FAULTLINE_COLOUR, _OWN_COLOUR, _PEER_COLOUR = "#1f7a5c", "#8fbfae", "#7c8896"
_LOG_SCALE_RATIO = 50  # of the longest bar to the median one
_PLOTS = (
    ("performance_drain", "No-op jobs drained by one worker process", ("drain",)),
    ("performance_write", "Jobs with one write each", ("write",)),
    (
        "performance_write_each",
        "Jobs with one write each, finished one by one",
        ("write_each",),
    ),
    ("performance_enqueue", "Jobs enqueued 1,000 at a time", ("bulk_enqueue",)),
    (
        "performance_latency",
        "From enqueue to start on an idle worker",
        ("latency_p50", "latency_p99"),
    ),
)


def draw_comparison(results: Results, folder: Path, note: str) -> list[Path]:
    """Write each plot that has figures, as PNG and SVG."""
    written = []
    for stem, title, measures in _PLOTS:
        if all(measure in results.measures for measure in measures):
            written += save(_draw(results, title, measures, note), folder, stem, note)
    return written


def _draw(results: Results, title: str, measures: Sequence[str], note: str) -> Figure:
    shown = _shown(results, measures[0])
    height = 0.34 * len(shown) * len(measures) ** 0.5 + 1.5
    figure, axes = new_figure(8.2, height)
    for number_of_bar, measure in enumerate(measures):
        _bars(axes, results, shown, measure, number_of_bar, len(measures))
    unit = MEASURES[measures[0]].unit
    axes.set_yticks(range(len(shown)), [_label(participant) for participant in shown], fontsize=8)
    axes.invert_yaxis()
    scale = _scale(axes)
    axes.set_xlabel(f"{unit}{scale}; the line spans all repeats", color=INK, fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color="#e6e9ec", linewidth=0.6)
    axes.set_axisbelow(True)
    parts = "" if len(measures) == 1 else " (p50 dark, p99 light)"
    axes.set_title(title + parts, loc="left", color=INK)
    foot = 0.85 / height
    figure.subplots_adjust(left=0.27, right=0.9, top=1 - 0.4 / height, bottom=foot)
    annotate_origin(figure, note)
    return figure


def _scale(axes: Axes) -> str:
    """Use a linear scale, or a logarithmic one if most bars would be invisible."""
    ends = [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)]
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:,g}")
    if max(ends) < _LOG_SCALE_RATIO * statistics.median(ends):
        axes.set_xlim(0, 1.1 * max(ends))
        return ""
    axes.set_xscale("log")
    axes.set_xlim(10 ** math.floor(math.log10(min(ends)) - 0.3), 2 * max(ends))
    axes.xaxis.set_major_formatter(lambda value, position: f"{value:,g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    return ", logarithmic"


def _shown(results: Results, measure: str) -> list[Participant]:
    """Return the participants with a figure, the best first."""
    medians = {
        participant.peer.name: found.median
        for participant in results.installed
        if (found := results.measured(measure, participant.peer.name))
    }
    with_figure = [
        participant for participant in results.installed if participant.peer.name in medians
    ]
    return sorted(
        with_figure,
        key=lambda participant: medians[participant.peer.name],
        reverse=MEASURES[measure].higher_is_better,
    )


def _bars(
    axes: Axes,
    results: Results,
    shown: Sequence[Participant],
    measure: str,
    number_of_bar: int,
    bars: int,
) -> None:
    width = 0.76 / bars
    for row, participant in enumerate(shown):
        found = results.measured(measure, participant.peer.name)
        if found is None:
            continue
        at = row + (number_of_bar - (bars - 1) / 2) * width
        alpha = 0.9 if number_of_bar == 0 else 0.5
        axes.barh(at, found.median, width * 0.94, color=_colour(participant.peer), alpha=alpha)
        spread = [[found.median - found.low], [found.high - found.median]]
        axes.errorbar(found.median, at, xerr=spread, color=INK, capsize=2, linewidth=0.9)
        axes.annotate(
            number(found.median),
            (found.high, at),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7.5,
            color=INK if participant.peer.name == FAULTLINE else FAINT,
        )


def _label(participant: Participant) -> str:
    title = participant.peer.title.split(" (")[0]  # the part in parentheses is only for the table
    return title if participant.peer.is_own else f"{title} {participant.version}".strip()


def _colour(peer: Peer) -> str:
    if peer.name == FAULTLINE:
        return _FAULTLINE_COLOUR
    return _OWN_COLOUR if peer.is_own else _PEER_COLOUR
