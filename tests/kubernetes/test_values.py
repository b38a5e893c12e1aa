"""values.yaml, its schema and the templates agree; wrong values are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from faultline.config import Retention
from tests.kubernetes import manifests
from tests.kubernetes.chart import InvalidValues, RenderingFailed
from tests.kubernetes.manifests import K8S

CHART = manifests.chart()
# Written as Kubernetes writes them; what is in them is not the chart's to say.
FREE = {"podSecurityContext", "containerSecurityContext"}


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/definitions/")
        return resolved(CHART.schema["definitions"][name])
    if "allOf" in schema:
        return resolved(schema["allOf"][0])
    return schema


def in_schema(schema: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, inner in resolved(schema).get("properties", {}).items():
        yield f"{above}{name}"
        yield from in_schema(inner, f"{above}{name}.")


def in_values(values: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, inner in values.items():
        yield f"{above}{name}"
        if isinstance(inner, dict) and name not in FREE:
            yield from in_values(inner, f"{above}{name}.")


def test_the_schema_has_every_value_and_no_other() -> None:
    ours = set(in_values(CHART.values)) - {"workers.default"}
    # Kubernetes' own names inside of lists and resources, and what Helm adds for subcharts.
    inside = re.compile(r"(\.resources\.(requests|limits)(\..+)?|^networkPolicy\.\w+\..+)$")
    theirs = {path for path in in_schema(CHART.schema) if not inside.search(path)} - {"global"}
    assert {path for path in ours if not inside.search(path)} == theirs


def test_a_worker_has_the_values_that_workers_have_by_default() -> None:
    worker = resolved(CHART.schema["properties"]["workers"]["additionalProperties"])
    assert set(worker["properties"]) == set(CHART.values["workerDefaults"])


def test_every_value_is_used_by_a_template() -> None:
    texts = "\n".join(p.read_text() for p in (K8S / "helm/faultline/templates").iterdir())
    used = {found.rstrip(".") for found in re.findall(r"\.Values\.([\w.]+)", texts)}
    used |= {f"workerDefaults.{name}" for name in re.findall(r"\$worker\.([\w.]+)", texts)}
    used |= {f"networkPolicy.{name}" for name in re.findall(r"\$policy\.(\w+)", texts)}
    # Not the whole sections: their values are listed one by one.
    used -= {
        "workerDefaults",
        "networkPolicy",
    }
    # Handed on as a whole, and taken apart by another template.
    used |= {f"{path}.{part}" for path in used for part in ("name", "key") if "secrets." in path}

    def is_used(path: str) -> bool:
        return any(path == one or path.startswith(f"{one}.") for one in used)

    leaves = {path for path in in_values(CHART.values) if not _has_parts(path)}
    assert {path for path in leaves if not is_used(path)} == set()
    assert {one for one in used if one not in set(in_values(CHART.values))} == set()


def _has_parts(path: str) -> bool:
    value: Any = CHART.values
    for name in path.split("."):
        value = value[name]
    return isinstance(value, dict) and bool(value) and path not in FREE


WRONG = {
    "a value that does not exist": {"replicas": 3},
    "a worker's option that does not exist": {"workers": {"mail": {"concurency": 3}}},
    "a queue that has no such name": {"workers": {"mail": {"queues": ["mail queue"]}}},
    "a worker whose name cannot be a label": {"workers": {"Mail": {}}},
    "a worker whose name is too long": {"workers": {"m" * 21: {}}},
    "no concurrency": {"workerDefaults": {"concurrency": 0}},
    "a drain that is not whole seconds": {"workerDefaults": {"drainSeconds": 1.5}},
    "a number as text": {"api": {"replicas": "2"}},
    "an application without its object": {"app": "shop.jobs"},
    "an image with a space": {"image": {"repository": "my image"}},
    "a pull policy that does not exist": {"image": {"pullPolicy": "Sometimes"}},
    "a secret without a key": {"database": {"secrets": {"worker": {"key": ""}}}},
    "a retention of minutes": {"retention": {"failedDays": 0.001}},
    "no reconciler at all": {"reconciler": {"replicas": 0}},
    "a memory without its unit": {"workerDefaults": {"resources": {"limits": {"memory": "a lot"}}}},
    "a peer that is no peer": {"networkPolicy": {"api": [{"pods": {}}]}},
    "a database that no address may reach": {"networkPolicy": {"database": []}},
    "an address without its scheme": {"keda": {"serverAddress": "prometheus:9090"}},
    "an option that is none": {"api": {"extraArgs": ["page-size=10"]}},
    "a budget beyond a percentage": {"api": {"maxUnavailable": "some"}},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_value_is_refused(what: str) -> None:
    with pytest.raises(InvalidValues):
        CHART.objects({"app": "shop.jobs:app", **WRONG[what]})


@pytest.mark.parametrize("source", manifests.CHARTS)
def test_helm_finds_nothing_wrong_with_the_chart(source: str) -> None:
    assert CHART.lint(manifests.values(source.removeprefix("chart:"))) == ""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "MODULE:NAME"),
        ({"workerDefaults": {"autoscaling": {"enabled": True}}}, "keda.serverAddress"),
        ({"inspector": {"actions": True}, "api": {"enabled": False}}, "api.enabled"),
        ({"monitoring": {"enabled": True}, "api": {"openMetrics": False}}, "monitoring.apiKey"),
    ],
)
def test_a_missing_value_is_reported(given: dict[str, Any], message: str) -> None:
    app = {} if message == "MODULE:NAME" else {"app": "shop.jobs:app"}
    with pytest.raises(RenderingFailed, match=message):
        CHART.objects({**app, **given})


def test_null_removes_a_worker() -> None:
    names = {each["metadata"]["name"] for each in manifests.of_kind("chart:queues", "Deployment")}
    assert "faultline-worker-default" not in names
    assert "faultline-worker-billing" in names


def test_a_worker_accepts_empty_zero_and_false_as_values() -> None:
    """A merge of values would treat zero and false as missing."""
    given = {
        "app": "shop.jobs:app",
        "keda": {"serverAddress": "http://p:9090"},
        "workerDefaults": {"autoscaling": {"enabled": True}, "nodeSelector": {"pool": "jobs"}},
        "workers": {"still": {"autoscaling": {"enabled": False}, "replicas": 0, "drainSeconds": 0}},
    }
    found = CHART.objects(given)
    [still] = [each for each in found if each["metadata"]["name"] == "faultline-worker-still"
               and each["kind"] == "Deployment"]  # fmt: skip
    assert still["spec"]["replicas"] == 0
    assert "--drain-seconds=0" in manifests.container(still)["args"]
    assert [e["metadata"]["name"] for e in found if e["kind"] == "ScaledObject"] == [
        "faultline-worker-default"
    ]


def test_the_charts_version_is_faultlines() -> None:
    import faultline

    assert CHART.about["appVersion"] == faultline.__version__


@pytest.mark.parametrize("source", manifests.ALL)
def test_workers_and_reconcilers_have_the_same_retention(source: str) -> None:
    """Every retention setting has the same value for workers and reconcilers."""
    names = {f"FAULTLINE_KEEP_{field.name.upper()}" for field in fields(Retention)}
    given = [
        {name: value for name, value in manifests.environment(each).items() if name in names}
        for each in manifests.workloads(source)
        if manifests.component(each) in ("worker", "reconciler")
    ]
    assert set(given[0]) == names
    assert all(each == given[0] for each in given)
    if source == "chart:everything":
        assert given[0]["FAULTLINE_KEEP_AUDIT_DAYS"] == "730"
