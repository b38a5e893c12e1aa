"""Draws a race as a picture or an animation: one lane per worker."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from faultline_drills.race import RaceReport
from faultline_drills.race.race_timeline import RaceMoment, moments
from faultline_drills.report.plots import FAINT, INK, annotate_origin, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL.Image import Image

LANES = {"A": 1.0, "B": 0.0}
_COLOURS = {"▶": "#3b6ea8", "‖": "#d0d7de", "▷": "#3b6ea8", "✓": "#1f7a5c", "✗": "#c2513b"}
_GOOD, _BAD = _COLOURS["✓"], _COLOURS["✗"]
_SHOWN_MARKS = frozenset(_COLOURS)
_GLIDE_MS, _READING_MS, _LAST_MS = 90, 1250, 3200
_GIF_COLOURS = 48


class DrawnRace:
    """The important moments of a race, on a time axis that begins with the first."""

    def __init__(self, report: RaceReport) -> None:
        shown = [each for each in moments(report.events) if each.mark in _SHOWN_MARKS]
        self.began = shown[0].at if shown else 0.0
        self.moments = shown
        self.length = max(shown[-1].at - self.began, 0.1) if shown else 1.0
        self.verdict = _verdict(report)
        self.holds = report.holds

    def at(self, moment: RaceMoment) -> float:
        return moment.at - self.began


def _verdict(report: RaceReport) -> str:
    if not report.holds:
        broken = [claim for claim, holds in report.checks.items() if not holds]
        return "does not hold: " + "; ".join(broken)
    return (
        f"{report.ledger_count} ledger entry, under token {report.max_token} ·"
        f" {report.payments} payment · {report.rejections} late commit refused"
    )


def draw_still(race: DrawnRace, note: str) -> Figure:
    """The whole race in one picture."""
    figure = _draw(race, race.length, race.verdict, _GOOD if race.holds else _BAD)
    annotate_origin(figure, note)
    return figure


def save_animation(race: DrawnRace, note: str, path: Path, *, glide_frames: int = 4) -> Path:
    """Save an animation that pauses at each moment, long enough to read it."""
    from PIL.Image import Dither

    frames: list[Image] = []
    durations: list[int] = []
    before, caption, colour = 0.0, "", INK
    for moment in race.moments:
        at = race.at(moment)
        for step in range(1, glide_frames):
            until = before + (at - before) * step / glide_frames
            frames.append(_image(_draw(race, until, caption, colour), note))
            durations.append(_GLIDE_MS)
        caption, colour = f"{moment.worker} {_caption(moment)}", _caption_colour(moment)
        frames.append(_image(_draw(race, at, caption, colour), note))
        durations.append(_READING_MS)
        before = at
    frames.append(_image(_draw(race, race.length, race.verdict, _GOOD), note))
    durations.append(_LAST_MS)
    path.parent.mkdir(parents=True, exist_ok=True)
    palette = frames[-1].quantize(_GIF_COLOURS)  # the last frame has every colour
    flat = [frame.quantize(palette=palette, dither=Dither.NONE) for frame in frames]
    flat[0].save(
        path,
        save_all=True,
        append_images=flat[1:],
        duration=durations,
        loop=0,
        optimize=True,
        comment=note.encode(),
    )
    return path


def _image(figure: Figure, note: str) -> Image:
    from PIL import Image

    annotate_origin(figure, note)
    held = io.BytesIO()
    figure.savefig(held, format="png")
    return Image.open(held).convert("RGB")


def _caption(moment: RaceMoment) -> str:
    """The moment's text, short enough for one line below the lanes."""
    return moment.text.replace("tries to commit under token 1: PostgreSQL refuses", "is refused")


def _caption_colour(moment: RaceMoment) -> str:
    return {"✓": _GOOD, "✗": _BAD}.get(moment.mark, INK)


def _draw(race: DrawnRace, until: float, caption: str, caption_colour: str) -> Figure:
    figure, axes = new_figure(8.2, 3.7)
    axes.set_xlim(-0.06 * race.length, 1.24 * race.length)
    axes.set_ylim(-0.75, 1.85)
    axes.set_yticks([LANES["A"], LANES["B"]], ["worker A", "worker B"], fontsize=11)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(axis="x", labelsize=8, labelcolor=FAINT)
    axes.set_xlabel("seconds since A's claim", fontsize=8, color=FAINT)
    for y in LANES.values():
        axes.axhline(y, color="#eaeef2", linewidth=1, zorder=0)
    for worker in LANES:
        own = [each for each in race.moments if each.worker == worker and race.at(each) <= until]
        _draw_bars(axes, race, worker, own, until)
        for moment in own:
            _draw_mark(axes, race, moment)
    if until < race.length:
        axes.axvline(until, color=FAINT, linewidth=0.8, linestyle=":")
    figure.text(0.02, 0.93, "The stale-worker race", fontsize=13, color=INK, fontweight="bold")
    figure.text(0.02, 0.135, caption, fontsize=11, color=caption_colour, fontweight="bold")
    figure.subplots_adjust(left=0.105, right=0.985, top=0.9, bottom=0.33)
    return figure


def _draw_bars(
    axes: Axes, race: DrawnRace, worker: str, own: Sequence[RaceMoment], until: float
) -> None:
    """Draw a bar from each moment to the worker's next: running or stalled."""
    for moment, following in zip_longest(own, own[1:]):
        if moment.mark in "✓✗":
            continue
        end = until if following is None else race.at(following)
        begin, y = race.at(moment), LANES[worker]
        stalled = moment.mark == "‖"
        axes.barh(
            y,
            end - begin,
            left=begin,
            height=0.34,
            color=_COLOURS[moment.mark],
            hatch="////" if stalled else None,
            edgecolor="white" if stalled else _COLOURS[moment.mark],
            linewidth=0,
            zorder=2,
        )
        if stalled and end - begin > 0.3 * race.length:
            axes.text(
                (begin + end) / 2,
                y,
                "stalled: no heartbeats, the lease expires",
                ha="center",
                va="center",
                fontsize=9,
                color=INK,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
                zorder=3,
            )


def _draw_mark(axes: Axes, race: DrawnRace, moment: RaceMoment) -> None:
    x, y = race.at(moment), LANES[moment.worker]
    if moment.mark == "▶":
        token = moment.text.rpartition(" ")[2]
        label, align, lift, weight = f"claim, token {token}", "left", 0.27, "bold"
    elif moment.mark == "▷":
        label, align, lift, weight = "resumes", "right", 0.27, "normal"
    elif moment.mark == "✓":
        label, align, lift, weight = "✓ committed", "left", -0.04, "bold"
    elif moment.mark == "✗":
        label, align, lift, weight = "✗ refused by\n   PostgreSQL", "left", -0.09, "bold"
    else:
        return
    offset = 0.012 * race.length if moment.mark in "✓✗" else 0.0
    colour = _COLOURS[moment.mark]
    axes.plot([x, x], [y - 0.22, y + 0.22], color=colour, linewidth=2.2, zorder=4)
    axes.text(x + offset, y + lift, label, ha=align, fontsize=9.5, color=colour, fontweight=weight)
