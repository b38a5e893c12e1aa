"""The results as plots; only this module needs matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.scaling.claims import BATCHES
from benchmarks.scaling.drain import TENTHS, Shape
from benchmarks.scaling.findings import CLAIM_BOUND, MEMORY_BOUNDS, Findings
from faultline_drills.report.plots import FAINT, INK, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HELD, _FREE = "#c2513b", "#1f7a5c"
_BY_SIZE = {1: "#3b6ea8", 100: "#1f7a5c"}
_COLUMNS = 3


def figures(findings: Findings) -> dict[str, Figure]:
    """Return the plots by the stem of their file names."""
    drawn: dict[str, Figure] = {}
    if findings.costs:
        drawn["scaling_claims"] = draw_claims(findings)
    if findings.drains:
        drawn["scaling_pinned"] = draw_drains(findings)
    if findings.footprints:
        drawn["scaling_memory"] = draw_memory(findings)
    return drawn


def draw_claims(findings: Findings) -> Figure:
    """Draw the cost of a claim for each table, as a ratio to the small table."""
    figure, axes = new_figure(7.6, 0.55 * len(findings.costs) + 1.6)
    names = [cost.case.name for cost in findings.costs]
    for row, cost in enumerate(findings.costs):
        for offset, size in zip((-0.14, 0.14), BATCHES, strict=True):
            ratio = findings.claim_ratio(cost, size)
            error = [[ratio.median - ratio.low], [ratio.high - ratio.median]]
            axes.errorbar(
                ratio.median,
                row + offset,
                xerr=error,
                fmt="o",
                markersize=5,
                capsize=2.5,
                linewidth=1,
                color=_BY_SIZE[size],
                label=f"claims of {size}" if row == 0 else None,
            )
    axes.axvline(1, color=FAINT, linewidth=0.8)
    axes.axvline(CLAIM_BOUND, color=_HELD, linewidth=0.8, linestyle="--", label=f"{CLAIM_BOUND}×")
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(
        "cost of a claim, compared with the small table of its kind", color=INK, fontsize=8
    )
    axes.set_title("Cost of a claim on large tables", loc="left", color=INK)
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    return figure


def draw_drains(findings: Findings) -> Figure:
    """Draw the jobs per second over a drain, one panel for each shape."""
    rows = -(-len(findings.shapes) // _COLUMNS)
    figure, first = new_figure(9.6, 2.7 * rows)
    first.remove()
    for number, shape in enumerate(findings.shapes):
        axes = figure.add_subplot(rows, _COLUMNS, number + 1)
        _draw_shape(axes, findings, shape)
        if number == 0:
            axes.legend(frameon=False, fontsize=8, loc="lower left")
    figure.suptitle(
        "Throughput while a pinned snapshot blocks vacuum", x=0.02, ha="left", color=INK
    )
    figure.tight_layout()
    return figure


def _draw_shape(axes: Axes, findings: Findings, shape: Shape) -> None:
    tenths = range(1, TENTHS + 1)
    for held, colour, label in ((False, _FREE, "not pinned"), (True, _HELD, "pinned")):
        found = [findings.tenth(shape, number - 1, held=held) for number in tenths]
        lows, highs = [each.low for each in found], [each.high for each in found]
        axes.fill_between(tenths, lows, highs, color=colour, alpha=0.15, linewidth=0)
        medians = [each.median for each in found]
        axes.plot(tenths, medians, "o-", color=colour, markersize=3, linewidth=1.2, label=label)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, length=0, labelsize=7)
    axes.set_title(shape.name, fontsize=9, color=INK, loc="left")
    axes.set_xlabel("tenth of the jobs", fontsize=7, color=INK)
    axes.set_ylabel("jobs/s", fontsize=7, color=INK)


def draw_memory(findings: Findings) -> Figure:
    """Draw the highest resident size, with its bound if there is one."""
    peaks = findings.peaks()
    figure, axes = new_figure(7.6, 0.6 * len(peaks) + 1.3)
    for row, (name, peak) in enumerate(peaks.items()):
        axes.barh(row, peak.median, 0.5, color="#3b6ea8", alpha=0.85)
        error = [[peak.median - peak.low], [peak.high - peak.median]]
        axes.errorbar(peak.median, row, xerr=error, color=INK, capsize=3, linewidth=1)
        if (bound := MEMORY_BOUNDS.get(name)) is not None:
            axes.plot([bound, bound], [row - 0.33, row + 0.33], color=_HELD, linewidth=1.4)
    axes.set_yticks(range(len(peaks)), list(peaks), fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("MB, highest resident size; the line is the bound", color=INK, fontsize=8)
    axes.set_title("Memory of one worker process", loc="left", color=INK)
    figure.tight_layout()
    return figure
