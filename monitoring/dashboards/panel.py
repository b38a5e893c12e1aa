"""One panel of a dashboard: its Prometheus queries, and how Grafana draws them."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24  # of Grafana's grid


@dataclass(frozen=True, slots=True)
class Query:
    expression: str
    legend: str = ""
    is_instant: bool = False
    format: str = "time_series"

    def as_json(self, letter: str) -> Json:
        return {
            "refId": letter,
            "datasource": SOURCE,
            "editorMode": "code",
            "expr": self.expression,
            "legendFormat": self.legend,
            "format": self.format,
            "instant": self.is_instant,
            "range": not self.is_instant,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    kind: str
    title: str
    description: str
    queries: tuple[Query, ...]
    width: int
    height: int
    defaults: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    transformations: tuple[Mapping[str, Any], ...] = ()

    def as_json(self, number: int, x: int, y: int) -> Json:
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "fieldConfig": {"defaults": dict(self.defaults), "overrides": []},
            "options": dict(self.options),
            "transformations": [dict(step) for step in self.transformations],
            "targets": [
                query.as_json(letter)
                for letter, query in zip(string.ascii_uppercase, self.queries, strict=False)
            ],
        }


def number(
    title: str,
    expression: str,
    *,
    description: str,
    unit: str = "short",
    worry_at: float | None = None,
    worry_below: float | None = None,
    width: int = 4,
) -> Panel:
    """One current figure; red from `worry_at` upwards, or below `worry_below`."""
    return Panel(
        kind="stat",
        title=title,
        description=description,
        queries=(Query(expression, is_instant=True),),
        width=width,
        height=4,
        defaults={
            "unit": unit,
            "color": {"mode": "thresholds"},
            "thresholds": {"mode": "absolute", "steps": _steps(worry_at, worry_below)},
        },
        options={
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "textMode": "value",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        },
    )


def _steps(worry_at: float | None, worry_below: float | None) -> list[Json]:
    if worry_at is not None:
        return [{"color": "green", "value": None}, {"color": "red", "value": worry_at}]
    if worry_below is not None:
        return [{"color": "red", "value": None}, {"color": "green", "value": worry_below}]
    return [{"color": "text", "value": None}]


def graph(
    title: str,
    *queries: Query,
    description: str,
    unit: str = "short",
    is_stacked: bool = False,
    width: int = 12,
) -> Panel:
    """Lines over time, from zero; stacked if their sum is meaningful."""
    return Panel(
        kind="timeseries",
        title=title,
        description=description,
        queries=queries,
        width=width,
        height=8,
        defaults={
            "unit": unit,
            "min": 0,
            "custom": {
                "drawStyle": "line",
                "lineWidth": 1,
                "fillOpacity": 30 if is_stacked else 0,
                "showPoints": "never",
                "spanNulls": False,
                "stacking": {"group": "A", "mode": "normal" if is_stacked else "none"},
            },
        },
        options={
            "legend": {
                "calcs": ["lastNotNull", "max"],
                "displayMode": "table",
                "placement": "bottom",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    )


def heatmap(title: str, histogram: str, *, description: str, width: int = 12) -> Panel:
    """The distribution of a histogram over time."""
    expression = f"sum by (le) (increase({histogram}_bucket[$__rate_interval]))"
    return Panel(
        kind="heatmap",
        title=title,
        description=description,
        queries=(Query(expression, "{{le}}", format="heatmap"),),
        width=width,
        height=8,
        options={
            "calculate": False,
            "cellGap": 1,
            "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "tooltip": {"mode": "single", "yHistogram": True},
            "yAxis": {"unit": "s", "axisPlacement": "left"},
        },
    )


def table(
    title: str, expression: str, *, description: str, columns: Mapping[str, str], width: int = 12
) -> Panel:
    """A table with one row per series; `columns` names the shown labels, in order."""
    return Panel(
        kind="table",
        title=title,
        description=description,
        queries=(Query(expression, is_instant=True, format="table"),),
        width=width,
        height=8,
        options={"showHeader": True, "cellHeight": "sm"},
        transformations=(
            {
                "id": "filterFieldsByName",
                "options": {"include": {"names": list(columns)}},
            },
            {
                "id": "organize",
                "options": {
                    "indexByName": {label: place for place, label in enumerate(columns)},
                    "renameByName": dict(columns),
                },
            },
        ),
    )


def quantiles(histogram: str, *, matching: str = "", by: str = "") -> Iterator[Query]:
    """The median, the 95th and the 99th percentile."""
    kept = ", ".join(filter(None, ["le", by]))
    legend = f" {{{{{by}}}}}" if by else ""
    rate = f"sum by ({kept}) (rate({histogram}_bucket{matching}[$__rate_interval]))"
    for share in (0.5, 0.95, 0.99):
        yield Query(f"histogram_quantile({share}, {rate})", f"p{share * 100:g}{legend}")
