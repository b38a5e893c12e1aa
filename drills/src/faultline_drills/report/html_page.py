"""The report as one self-contained HTML page with styles and plots. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from faultline_drills.provenance import in_words
from faultline_drills.report.markdown import headline
from faultline_drills.report.tables import ReportTable, all_tables

_STYLE = """
:root { color-scheme: light dark; --ink: #24292f; --faint: #656d76; --line: #d8dee4; --paper: #fff;
  --good: #1f7a5c; --bad: #c2513b; --unsure: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --faint: #9198a1; --line: #3d444d;
  --paper: #0d1117; --good: #4ac29a; --bad: #f08a75; --unsure: #d9a53a; } }
body { margin: 0 auto; max-width: 62rem; padding: 2.5rem 1.5rem 4rem; background: var(--paper);
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.9rem; margin: 0 0 .5rem; } h2 { font-size: 1.25rem; margin: 2.6rem 0 .4rem; }
.verdict { font-size: 1.1rem; border-left: 4px solid var(--unsure); padding: .2rem 0 .2rem 1rem; }
.verdict.valid { border-color: var(--good); } .verdict.invalid { border-color: var(--bad); }
.about, dl, footer { color: var(--faint); font-size: .9rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dd { margin: 0; overflow-wrap: break-word; min-width: 0; }
/* On a narrow screen a table scrolls sideways, like a plot: no word is broken. */
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .86rem; width: 100%; }
th, td { text-align: left; padding: .34rem .7rem .34rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td:last-child:not(.number) { min-width: 14rem; overflow-wrap: break-word; }
th { color: var(--faint); font-weight: 600; }
th.number { text-align: right; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.valid, td.yes { color: var(--good); font-weight: 600; }
td.invalid, td.NO { color: var(--bad); font-weight: 600; } td.unknown { color: var(--unsure); }
figure { margin: 1.4rem 0; background: #fff; border: 1px solid var(--line); border-radius: 8px;
  padding: .5rem; overflow-x: auto; }
figure svg { width: 100%; min-width: 36rem; height: auto; display: block; }
code { font-family: ui-monospace, monospace; font-size: .92em; }
"""
_NUMBER = re.compile(r"[\d,.]+( %| s)?( to [\d,.]+ %)?")
_MARKS = frozenset({"valid", "invalid", "unknown", "yes", "NO"})


def as_html(facts: Mapping[str, Any], pictures: Mapping[str, str]) -> str:
    """The report as HTML; `pictures` are SVG documents by caption."""
    origin = "".join(
        f"<dt>{escape(name)}</dt><dd>{_inline(value)}</dd>"
        for name, value in in_words(facts).items()
    )
    reasons = "".join(f"<li>{_inline(reason)}</li>" for reason in facts["why_not"])
    limits = "".join(f"<li>{_inline(each)}</li>" for each in facts["not_guaranteed"])
    body = [
        "<h1>Faultline under faults</h1>",
        f'<p class="verdict {escape(facts["verdict"])}">{_inline(headline(facts))}</p>',
        f"<ul>{reasons}</ul>" if reasons else "",
        f"<dl>{origin}</dl>",
        *(_figure(caption, svg) for caption, svg in pictures.items()),
        *(_section(table) for table in all_tables(facts)),
        f"<h2>Not guaranteed</h2><ul>{limits}</ul>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Faultline under faults</title><style>{_STYLE}</style></head>\n<body>"
        + "\n".join(body)
        + "</body></html>\n"
    )


def _section(table: ReportTable) -> str:
    columns = zip(table.head, zip(*table.rows, strict=True), strict=True) if table.rows else ()
    head = "".join(f"<th{_kind(cells)}>{escape(name)}</th>" for name, cells in columns)
    rows = "\n".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    return (
        f'<h2>{escape(table.title)}</h2><p class="about">{_inline(table.about)}</p>'
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _cell(text: str) -> str:
    if text in _MARKS:
        return f'<td class="{text}">{text}</td>'
    return f"<td{_kind([text])}>{_inline(text)}</td>"


def _kind(cells: Iterable[str]) -> str:
    return ' class="number"' if all(map(_NUMBER.fullmatch, cells)) else ""


def _figure(caption: str, svg: str) -> str:
    drawing = svg[svg.index("<svg") :]
    # matplotlib uses the same element ids in every drawing, and a page has several.
    prefix = re.sub(r"\W+", "-", caption.lower())
    drawing = re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\g<1>{prefix}-", drawing)
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    return f'<figure role="img" aria-label="{escape(caption)}">{drawing}</figure>'


def _inline(text: str) -> str:
    """Render Markdown's `code` and **bold** only."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", marked)
