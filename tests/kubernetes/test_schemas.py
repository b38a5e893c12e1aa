"""Every object is one that Kubernetes knows, with no field that it does not."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.kubernetes import manifests
from tests.kubernetes.manifests import CUSTOM, K8S
from tests.kubernetes.reading import read

# The first version that the chart allows, and the newest that the validator knows.
FIRST, NEWEST = (
    "1.30",
    kubernetes_validate.latest_version(),
)


def validated(document: dict[str, Any], version: str) -> None:
    if document["kind"] in CUSTOM:
        assert document["apiVersion"] == CUSTOM[document["kind"]]
        return
    kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize(
    ("source", "version"),
    [
        *((source, NEWEST) for source in manifests.ALL),
        *((source, FIRST) for source in ("chart:everything", "chart:queues")),
    ],
)
def test_kubernetes_knows_every_field(source: str, version: str) -> None:
    for document in manifests.objects(source):
        validated(document, version)


def test_kubernetes_knows_every_field_of_the_operator_s_job() -> None:
    validated(read((K8S / "examples" / "operator.yaml").read_text()), NEWEST)


def test_the_first_version_is_the_one_that_the_chart_asks_for() -> None:
    assert manifests.chart().about["kubeVersion"] == f">={FIRST}.0-0"


def test_a_field_that_does_not_exist_is_found() -> None:
    [worker] = [w for w in manifests.workloads("chart:minimal") if w["kind"] == "Deployment"]
    wrong = read(yaml.safe_dump(worker))
    wrong["spec"]["template"]["spec"]["terminationGracePeriod"] = 30
    with pytest.raises(kubernetes_validate.ValidationError):
        validated(wrong, NEWEST)


@pytest.mark.parametrize("source", manifests.ALL)
def test_no_two_objects_have_one_name(source: str) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in manifests.objects(source)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("source", manifests.ALL)
def test_a_name_is_short_enough_for_what_is_made_from_it(source: str) -> None:
    """A Deployment's pod adds 17 characters; a host name has at most 63."""
    for each in manifests.of_kind(source, "Deployment", "Job"):
        assert len(each["metadata"]["name"]) <= 63 - 17, each["metadata"]["name"]
