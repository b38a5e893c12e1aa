"""The plots of a report: the only part that needs matplotlib."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from faultline.errors import FaultlineError
from faultline_drills.judging.measures import quantile
from faultline_drills.report.campaign_groups import CampaignGroup
from faultline_drills.subjects import Subject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {Subject.FAULTLINE: "#1f7a5c", Subject.NAIVE: "#c2513b"}
NAMES = {Subject.FAULTLINE: "Faultline", Subject.NAIVE: "the same queue without the fence"}
INK, FAINT = "#24292f", "#8b949e"
_NOTE_WIDTH = 150
_BAR_WIDTH = 0.36


class NoPlots(FaultlineError):
    """matplotlib is not installed."""

    code = "no_plots"


def require_plots() -> None:
    try:
        import_module("matplotlib")
    except ImportError:
        raise NoPlots(
            "plots need matplotlib", hint="pip install 'faultline-drills[report]'"
        ) from None


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure made without pyplot, which would need a display."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    matplotlib.rcParams.update({"svg.fonttype": "path", "svg.hashsalt": "faultline"})
    figure = Figure(figsize=(width, height), dpi=110, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, length=0)
    return figure, axes


def annotate_origin(figure: Figure, note: str) -> None:
    """Write where the picture comes from at its bottom."""
    text = "\n".join(textwrap.wrap(note, _NOTE_WIDTH))
    figure.text(0.02, 0.015, text, fontsize=6.5, color=FAINT, va="bottom")


def save(figure: Figure, folder: Path, stem: str, note: str) -> list[Path]:
    """Save the figure as PNG and SVG."""
    return [save_as(figure, folder / f"{stem}.{kind}", note) for kind in ("png", "svg")]


def save_as(figure: Figure, path: Path, note: str) -> Path:
    """Save the figure, with its origin as searchable metadata too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"Description": note} | ({"Date": None} if path.suffix == ".svg" else {})
    figure.savefig(path, metadata=metadata)
    return path


def draw_duplicates(groups: Sequence[CampaignGroup], note: str) -> Figure:
    """Bars of the share of jobs that took effect more than once, with 95 % intervals."""
    figure, axes = new_figure(7.6, 4.3)
    rates = sorted({group.fault_rate for group in groups})
    for group in groups:
        side = -0.5 if group.subject is Subject.NAIVE else 0.5
        at = rates.index(group.fault_rate) + side * (_BAR_WIDTH + 0.06)
        share = group.duplicates / group.jobs
        low, high = group.interval
        colour = COLOURS[group.subject]
        axes.bar(at, 100 * share, _BAR_WIDTH, color=colour, alpha=0.85)
        axes.errorbar(
            at,
            100 * share,
            yerr=[[100 * max(0.0, share - low)], [100 * max(0.0, high - share)]],
            color=INK,
            capsize=4,
            linewidth=1,
        )
        axes.annotate(
            f"{group.duplicates} of {group.jobs:,}",
            (at, 100 * high),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=9,
            color=colour,
            fontweight="bold",
        )
    axes.set_xticks(range(len(rates)), [f"fault rate {rate:.0%}" for rate in rates])
    axes.set_xlim(-0.75, len(rates) - 0.25)
    axes.set_ylabel("% of jobs, with 95 % interval", color=INK)
    axes.set_ylim(0, 115 * max(max(group.interval[1] for group in groups), 0.001))
    axes.set_title("Jobs that took effect more than once", loc="left", color=INK, pad=26)
    _name_subjects(axes)
    figure.subplots_adjust(left=0.09, right=0.97, top=0.83, bottom=0.18)
    annotate_origin(figure, note)
    return figure


def _name_subjects(axes: Axes) -> None:
    for position, subject in ((0.0, Subject.NAIVE), (0.42, Subject.FAULTLINE)):
        axes.text(
            position,
            1.03,
            f"■ {NAMES[subject]}",
            transform=axes.transAxes,
            color=COLOURS[subject],
            fontsize=9,
        )


def draw_recoveries(crash: Sequence[float], takeover: Sequence[float], note: str) -> Figure:
    """Every measured recovery time as a dot, with the median and the 95th percentile."""
    figure, axes = new_figure(7.6, 3.0)
    rows = [
        ("worker killed:\ndeath to next claim", crash),
        ("worker stalled:\nlease expiry to next claim", takeover),
    ]
    for row, (_, seconds) in enumerate(rows):
        if not seconds:
            continue
        ordered = sorted(seconds)
        spread = [row + 0.16 * ((number * 0.618) % 1 - 0.5) for number in range(len(ordered))]
        axes.scatter(ordered, spread, s=14, color="#3b6ea8", alpha=0.45, linewidths=0)
        for share, name in ((0.5, "p50"), (0.95, "p95")):
            value = quantile(ordered, share)
            axes.plot([value, value], [row - 0.2, row + 0.2], color=INK, linewidth=1.4)
            axes.annotate(
                f"{name} {value:.2f} s",
                (value, row - (0.24 if share == 0.95 else 0.42)),
                fontsize=8,
                color=INK,
                ha="left",
                va="bottom",
            )
    axes.set_yticks([0, 1], [f"{name}\nn = {len(seconds)}" for name, seconds in rows], fontsize=8)
    axes.set_ylim(1.5, -0.7)
    axes.set_xlim(0, 1.12 * max([*crash, *takeover, 0.1]))
    axes.set_xlabel("seconds", color=INK)
    axes.set_title("Time until another worker claims the job", loc="left", color=INK)
    figure.subplots_adjust(left=0.2, right=0.97, top=0.88, bottom=0.3)
    annotate_origin(figure, note)
    return figure
