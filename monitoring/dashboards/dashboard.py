"""A Grafana dashboard: rows of panels, laid out from left to right, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monitoring.dashboards.panel import COLUMNS, SOURCE, Json, Panel

SCHEMA_VERSION = 39  # Grafana 11; newer versions upgrade it when they load it
TAG = "faultline"


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A dashboard variable: the values of a label, with all of them preselected."""

    label: str
    metric: str

    def as_json(self) -> Json:
        values = f"label_values({self.metric}, {self.label})"
        return {
            "type": "query",
            "name": self.label,
            "label": self.label,
            "datasource": SOURCE,
            "definition": values,
            "query": {"query": values, "refId": "values"},
            "refresh": 2,  # when the time range changes: the set of queues changes
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]},
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Dashboard:
    name: str  # of the file, and in the address
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()

    @property
    def file_name(self) -> str:
        return f"{self.name}.json"

    def as_text(self) -> str:
        return json.dumps(self.as_json(), indent=2, ensure_ascii=False) + "\n"

    def as_json(self) -> Json:
        return {
            "uid": f"faultline-{self.name}",
            "title": f"Faultline: {self.title}",
            "description": self.description,
            "tags": [TAG],
            "schemaVersion": SCHEMA_VERSION,
            "editable": True,
            "graphTooltip": 1,  # one crosshair for all panels
            "refresh": "15s",
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "browser",
            "annotations": {"list": [_refusals()]},
            "templating": {
                "list": [_data_source(), *(variable.as_json() for variable in self.variables)]
            },
            "links": [_other_dashboards()],
            "panels": self._panels(),
        }

    def _panels(self) -> list[Json]:
        placed: list[Json] = []
        y = 0
        for row in self.rows:
            placed.append(_heading(row.title, number=len(placed) + 1, y=y))
            x, y, tallest = 0, y + 1, 0
            for panel in row.panels:
                if x + panel.width > COLUMNS:
                    x, y, tallest = 0, y + tallest, 0
                placed.append(panel.as_json(len(placed) + 1, x, y))
                x, tallest = x + panel.width, max(tallest, panel.height)
            y += tallest
        return placed


def _heading(title: str, *, number: int, y: int) -> Json:
    return {
        "id": number,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
        "panels": [],
    }


def _data_source() -> Mapping[str, Any]:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Prometheus",
        "query": "prometheus",
        "refresh": 1,
        "current": {},
    }


def _other_dashboards() -> Mapping[str, Any]:
    return {
        "type": "dashboards",
        "title": "Faultline",
        "tags": [TAG],
        "asDropdown": True,
        "includeVars": False,
        "keepTime": True,
    }


def _refusals() -> Mapping[str, Any]:
    """An annotation in every graph where the fence refused a stale write."""
    return {
        "name": "Stale writes refused",
        "datasource": SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": "orange",
        "expr": "sum by (reason) (increase(faultline_stale_write_rejected_total[1m])) > 0",
        "step": "60s",
        "titleFormat": "stale write refused",
        "textFormat": "{{reason}}",
    }
