"""The kustomize base and the Helm chart are two ways to the same thing."""

from __future__ import annotations

import copy

from tests.kubernetes import manifests
from tests.kubernetes.manifests import Object

# What Helm puts on top: who made it, which version, and when it runs.
HELM = {"helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"}


def plain(document: Object) -> Object:
    document = copy.deepcopy(document)
    places = [document["metadata"]]
    if "template" in document.get("spec", {}):
        places.append(document["spec"]["template"]["metadata"])
    for metadata in places:
        for name in HELM:
            metadata.get("labels", {}).pop(name, None)
        hooks = metadata.get("annotations", {})
        for name in [one for one in hooks if one.startswith("helm.sh/hook")]:
            del hooks[name]
        if not hooks:
            metadata.pop("annotations", None)
    return document


def by_name(documents: list[Object]) -> dict[tuple[str, str], Object]:
    return {(each["kind"], each["metadata"]["name"]): plain(each) for each in documents}


def test_the_base_is_the_chart_with_its_defaults() -> None:
    base, chart = by_name(manifests.objects("base")), by_name(manifests.objects("chart:default"))
    assert base.keys() == chart.keys()
    for name, document in base.items():
        assert document == chart[name], name


def test_the_production_overlay_is_the_chart_with_the_same_choices() -> None:
    given: Object = {
        "app": "shop.jobs:app",
        "image": {"repository": "registry.example/shop/jobs", "tag": "2026.11"},
        "database": {"ca": {"secretName": "faultline-db-ca"}},
        "keda": {"serverAddress": "http://prometheus-operated.monitoring:9090"},
        "monitoring": {"enabled": True},
        "api": {"autoscaling": {"enabled": True}},
        "workers": {
            "default": {"autoscaling": {"enabled": True}},
            "billing": {
                "concurrency": 4,
                "drainSeconds": 120,
                "autoscaling": {"enabled": True, "maxReplicas": 20, "jobsPerReplica": 8},
            },
        },
    }
    chart = by_name(manifests.chart().objects(given, namespace="faultline"))
    overlay = by_name(manifests.objects("overlays/production"))
    del overlay["Namespace", "faultline"]
    assert overlay.keys() == chart.keys()
    for name, document in overlay.items():
        assert document["metadata"].pop("namespace") == "faultline"
        assert in_order(document) == in_order(chart[name]), name


def in_order(document: Object) -> Object:
    """Sort the lists whose order has no meaning and differs between chart and overlay."""
    if document["kind"] in ("Deployment", "Job"):
        spec = document["spec"]["template"]["spec"]
        for where, key in (
            (spec, "volumes"),
            *((spec["containers"][0], k) for k in ("env", "volumeMounts")),
        ):
            where[key] = sorted(where[key], key=lambda each: str(each["name"]))
    return document
