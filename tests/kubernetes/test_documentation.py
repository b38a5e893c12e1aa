"""docs/kubernetes.md agrees with k8s/: values, secrets, files, grace period."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from k8s import values_table
from tests.kubernetes import manifests
from tests.kubernetes.manifests import K8S, ROOT
from tests.kubernetes.reading import read

DOCUMENT = (ROOT / "docs" / "kubernetes.md").read_text()


def test_the_table_of_values_is_up_to_date() -> None:
    assert values_table.document() == DOCUMENT, "`make k8s` writes it"


def test_every_value_is_explained() -> None:
    found = values_table.values(values_table.VALUES.read_text())
    assert [value.path for value in found if not value.says] == ["workers.default"] or not [
        value.path for value in found if not value.says
    ]
    # Values inside {} and [] of Kubernetes' own types are part of their parent's row.
    named = {value.path for value in found}
    assert {
        "workerDefaults.drainSeconds",
        "database.secrets.api.key",
        "keda.serverAddress",
    } <= named


def test_every_key_of_the_secret_is_documented() -> None:
    documented = set(re.findall(r"^\| `(\w+)` \| `faultline_", DOCUMENT, flags=re.MULTILINE))
    mounted = set()
    operator = read((K8S / "examples" / "operator.yaml").read_text())
    for workload in (*manifests.workloads("chart:default"), operator):
        for volume in workload["spec"]["template"]["spec"]["volumes"]:
            mounted |= {item["key"] for item in volume.get("secret", {}).get("items", [])}
    assert mounted == documented
    created = set(re.findall(r"--from-literal=(\w+)=", DOCUMENT))
    assert created == documented


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(k8s/[\w./-]+)`", DOCUMENT))))
def test_every_named_file_exists(path: str) -> None:
    assert (ROOT / path).exists()


def test_every_link_has_a_target() -> None:
    for link in re.findall(r"\]\(([\w.-]+\.md)(?:#[\w-]+)?\)", DOCUMENT):
        assert Path(ROOT, "docs", link).is_file(), link


def test_the_documented_grace_period_is_the_configured_one() -> None:
    [extra] = re.findall(r"`drainSeconds` \+ (\d+)\.", DOCUMENT)
    [worker] = [
        w for w in manifests.workloads("chart:default") if manifests.component(w) == "worker"
    ]
    grace = worker["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace == int(manifests.option(worker, "drain-seconds")) + int(extra)
