"""All objects of k8s/: the chart with several values, the base, and each overlay."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.chart import Chart
from tests.kubernetes.reading import read, read_all

Object = dict[str, Any]

ROOT = Path(__file__).parents[2]
K8S = ROOT / "k8s"
VALUES = Path(__file__).parent / "values"
RELEASE, NAMESPACE = "faultline", "jobs"

CHARTS = [f"chart:{path.stem}" for path in sorted(VALUES.glob("*.yaml"))]
KUSTOMIZED = ["base", *sorted(f"overlays/{path.name}" for path in (K8S / "overlays").iterdir())]
ALL = [*CHARTS, *KUSTOMIZED]

# Kinds of which Kubernetes itself knows nothing, and its schemas neither.
CUSTOM = {
    "ScaledObject": "keda.sh/v1alpha1",
    "ServiceMonitor": "monitoring.coreos.com/v1",
    "PodMonitor": "monitoring.coreos.com/v1",
    "PrometheusRule": "monitoring.coreos.com/v1",
}


@functools.cache
def chart() -> Chart:
    return Chart(K8S / "helm" / "faultline")


def values(name: str) -> Object:
    found: Object = read((VALUES / f"{name}.yaml").read_text())
    return found


@functools.cache
def objects(source: str) -> list[Object]:
    """The objects of this source; Kustomize's need kubectl, but no cluster."""
    if source.startswith("chart:"):
        given = values(source.removeprefix("chart:"))
        return chart().objects(given, release=RELEASE, namespace=NAMESPACE)
    return read_all(kustomized(source))


def kustomized(folder: str) -> str:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip(
            "no kubectl (1.27 or later; kubernetes.io/docs/tasks/tools) to build k8s/overlays"
        )
    done = subprocess.run(
        [kubectl, "kustomize", str(K8S / folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def of_kind(source: str, *kinds: str) -> list[Object]:
    return [each for each in objects(source) if each["kind"] in kinds]


def named(source: str, kind: str, name: str) -> Object:
    [found] = [each for each in of_kind(source, kind) if each["metadata"]["name"] == name]
    return found


def is_ours(workload: Object) -> bool:
    """Not the throwaway PostgreSQL of the development overlay."""
    labels: Object = workload["spec"]["template"]["metadata"]["labels"]
    return labels["app.kubernetes.io/name"] != "postgresql"


def workloads(source: str) -> list[Object]:
    """The Deployments and Jobs that run Faultline."""
    return [each for each in of_kind(source, "Deployment", "Job") if is_ours(each)]


def pod(workload: Object) -> Object:
    spec: Object = workload["spec"]["template"]["spec"]
    return spec


def container(workload: Object) -> Object:
    [only] = pod(workload)["containers"]
    return dict(only)


def component(workload: Object) -> str:
    labels = workload["spec"]["template"]["metadata"]["labels"]
    return str(labels["app.kubernetes.io/component"])


def environment(workload: Object) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container(workload)["env"]}


def option(workload: Object, name: str) -> str:
    """The value of an option on its command line."""
    [found] = [one for one in container(workload)["args"] if one.startswith(f"--{name}=")]
    return str(found.partition("=")[2])


def probes(workload: Object) -> Iterator[tuple[str, Object]]:
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        if name in container(workload):
            yield name, container(workload)[name]


def matches(selector: Object, labels: Object) -> bool:
    assert set(selector) <= {"matchLabels"}, selector  # all that we use
    return selector.get("matchLabels", {}).items() <= labels.items()
