"""Draws an interleaving as an SVG: one lane per actor, time downwards. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from faultline_drills.explorer.interleaving import Step

_LANE, _ROW, _LEFT, _TOP = 210, 46, 40, 96
_STATE = 330
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}.small{font-size:10.5px;fill:#666}"
    ".name{font-weight:600}.bad{fill:#b00020}line{stroke:#ddd}"
    "rect{fill:#eef3fb;stroke:#7d9bc8;rx:4}rect.bad{fill:#fdecee;stroke:#b00020}"
    "rect.wait{fill:#fff6dd;stroke:#c9a227}"
)


def draw_interleaving(steps: Sequence[Step], *, title: str, violation: str) -> str:
    lanes = list(dict.fromkeys(step.actor for step in steps))
    width = _LEFT + _LANE * len(lanes) + _STATE
    height = _TOP + _ROW * len(steps) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}"><style>{_STYLE}</style>',
        f'<rect x="0" y="0" width="{width}" height="{height}" style="fill:#fff;stroke:none"/>',
        _text(_LEFT, 24, title, "name"),
        _text(_LEFT, 44, violation, "bad"),
        _text(
            _LEFT + _LANE * len(lanes), _TOP - 20, "the jobs, as other sessions see them", "name"
        ),
    ]
    for lane, actor in enumerate(lanes):
        x = _LEFT + _LANE * lane
        parts.append(_text(x, _TOP - 20, actor, "name"))
        parts.append(f'<line x1="{x + 6}" y1="{_TOP - 12}" x2="{x + 6}" y2="{height - 20}"/>')
    for row, step in enumerate(steps):
        parts += _step(row, step, lanes)
    return "\n".join([*parts, "</svg>", ""])


def _step(row: int, step: Step, lanes: list[str]) -> list[str]:
    x, y = _LEFT + _LANE * lanes.index(step.actor), _TOP + _ROW * row
    kind = "wait" if step.result.startswith("waits") else "bad" if "refused" in step.result else ""
    token = f" · token {step.token}" if step.token is not None else ""
    return [
        f'<rect class="{kind}" x="{x}" y="{y}" width="{_LANE - 14}" height="{_ROW - 8}"/>',
        _text(x + 6, y + 15, f"{row + 1}. {_short(step.action, 26)}{token}"),
        _text(x + 6, y + 31, _short(step.result, 34), "small"),
        _text(_LEFT + _LANE * len(lanes), y + 22, _short(step.jobs, 56), "small"),
    ]


def _text(x: int, y: int, text: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>'


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
