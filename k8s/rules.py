"""Copies the rules of monitoring/ into the chart and into PrometheusRules."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

HERE = Path(__file__).parent
SOURCES = HERE.parent / "monitoring" / "rules"
CHART = HERE / "helm" / "faultline" / "rules"
COMPONENT = HERE / "components" / "monitoring"
NAMES = ("alerts", "recording")

_HEAD = """\
# Written by `make k8s` from monitoring/rules/{name}.yml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: faultline-{name}
  labels:
    app.kubernetes.io/name: faultline
    app.kubernetes.io/instance: faultline
spec:
"""


def embedded() -> dict[Path, str]:
    """Each file that repeats the rules, with its content."""
    files = {}
    for name in NAMES:
        rules = (SOURCES / f"{name}.yml").read_text()
        files[CHART / f"{name}.yml"] = rules
        files[COMPONENT / f"{name}.yaml"] = _HEAD.format(name=name) + indent(rules, "  ")
    return files
