"""Pods: what they may do, what they are given, and how many there are."""

from __future__ import annotations

import pytest
import yaml

from tests.kubernetes import manifests
from tests.kubernetes.manifests import K8S, ROOT, Object, pod
from tests.kubernetes.reading import read


def everything(source: str) -> list[Object]:
    """The throwaway PostgreSQL too: its namespace asks the same of it."""
    found = manifests.of_kind(source, "Deployment", "Job")
    return [*found, read((K8S / "examples" / "operator.yaml").read_text())]


@pytest.mark.parametrize("source", manifests.ALL)
def test_a_pod_is_restricted(source: str) -> None:
    """It meets the restricted Pod Security Standard, with a read-only root."""
    for workload in everything(source):
        spec, container = pod(workload), manifests.container(workload)
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] > 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert not own.get("privileged")
        assert all("hostPort" not in port for port in container.get("ports", []))
        for volume in spec["volumes"]:
            assert set(volume) - {"name"} <= {"secret", "emptyDir", "configMap"}


def instruction(name: str) -> str:
    """The argument of the Dockerfile's last instruction of this name."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    return [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")][-1]


def test_the_image_is_made_for_such_a_pod() -> None:
    for workload in manifests.workloads("chart:default"):
        security = pod(workload)["securityContext"]
        assert instruction("USER") == f"{security['runAsUser']}:{security['runAsGroup']}"
        assert instruction("STOPSIGNAL") == "SIGTERM"
        exposed = {int(port) for port in instruction("EXPOSE").split()}
        ports = manifests.container(workload).get("ports", [])
        assert {port["containerPort"] for port in ports} <= exposed
    for workload in manifests.workloads("overlays/development"):
        mounts = manifests.container(workload)["volumeMounts"]
        for mount in (one for one in mounts if one["name"] == "application"):
            assert mount["mountPath"] == instruction("WORKDIR")


@pytest.mark.parametrize("source", manifests.ALL)
def test_a_pod_does_not_talk_to_kubernetes(source: str) -> None:
    for workload in everything(source):
        assert pod(workload)["automountServiceAccountToken"] is False
        assert pod(workload)["enableServiceLinks"] is False
    for account in manifests.of_kind(source, "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False
    assert not manifests.of_kind(source, "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")


@pytest.mark.parametrize("source", manifests.ALL)
def test_a_pod_runs_under_an_account_that_is_made(source: str) -> None:
    made = {each["metadata"]["name"] for each in manifests.of_kind(source, "ServiceAccount")}
    for workload in manifests.workloads(source):
        name = pod(workload)["serviceAccountName"]
        assert name in made or name == "existing"  # values/minimal.yaml


def test_the_migration_is_a_hook_and_so_is_all_that_it_needs() -> None:
    """Before the hook runs, no other object of the release exists."""
    for kind in ("Job", "ServiceAccount"):
        made = manifests.named("chart:default", kind, "faultline-migrate")
        assert made["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    job = manifests.named("chart:default", "Job", "faultline-migrate")
    account = manifests.named("chart:default", "ServiceAccount", "faultline-migrate")
    weights = [
        int(each["metadata"]["annotations"]["helm.sh/hook-weight"]) for each in (account, job)
    ]
    assert weights[0] < weights[1]
    assert pod(job)["serviceAccountName"] == "faultline-migrate"
    others = [
        w for w in manifests.objects("chart:default") if "-migrate" not in w["metadata"]["name"]
    ]
    assert not [w for w in others if "helm.sh/hook" in w["metadata"].get("annotations", {})]


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────

KEYS = {
    "migrate": "migrate",
    "worker": "worker",
    "reconciler": "worker",
    "api": "api",
    "inspector": "inspector",
}


@pytest.mark.parametrize("source", manifests.ALL)
def test_a_part_is_given_its_own_url_as_a_file_and_no_other(source: str) -> None:
    for workload in manifests.workloads(source):
        [volume] = [each for each in pod(workload)["volumes"] if each["name"] == "database-url"]
        [item] = volume["secret"]["items"]
        part = manifests.component(workload)
        if source != "chart:everything":  # whose Secrets have names of their own
            assert item["key"] == KEYS[part]
        [mount] = [
            each
            for each in manifests.container(workload)["volumeMounts"]
            if each["name"] == "database-url"
        ]
        assert mount["readOnly"] is True
        file = manifests.environment(workload)["DATABASE_URL_FILE"]
        assert file == f"{mount['mountPath']}/{item['path']}"
        # Root owns it; the pod's group may read it, and no other account.
        assert volume["secret"]["defaultMode"] == 0o440
        assert pod(workload)["securityContext"]["fsGroup"]


@pytest.mark.parametrize("source", manifests.ALL)
def test_no_secret_is_in_the_environment_or_on_a_command_line(source: str) -> None:
    for workload in manifests.workloads(source):
        for each in manifests.container(workload)["env"]:
            assert "valueFrom" not in each
        assert "postgresql://" not in yaml.safe_dump(workload)


@pytest.mark.parametrize("source", manifests.ALL)
def test_every_mount_has_a_volume_and_every_volume_a_mount(source: str) -> None:
    for workload in everything(source):
        volumes = {each["name"] for each in pod(workload)["volumes"]}
        assert {each["name"] for each in manifests.container(workload)["volumeMounts"]} == volumes


@pytest.mark.parametrize("source", manifests.ALL)
def test_writable_paths_are_volumes(source: str) -> None:
    for workload in manifests.workloads(source):
        writable = {
            each["mountPath"]
            for each in manifests.container(workload)["volumeMounts"]
            if not each.get("readOnly")
        }
        assert "/tmp" in writable  # metrics of several processes, and your handlers
        health = manifests.environment(workload).get("FAULTLINE_HEALTH_FILE")
        assert (health is not None) == (manifests.component(workload) in ("worker", "reconciler"))
        assert health is None or health.rpartition("/")[0] in writable


def test_the_authority_of_the_server_is_mounted_where_libpq_looks_for_it() -> None:
    for workload in manifests.workloads("chart:everything"):
        environment = manifests.environment(workload)
        assert environment["PGSSLMODE"] == "verify-full"
        [mount] = [
            each
            for each in manifests.container(workload)["volumeMounts"]
            if each["name"] == "database-ca"
        ]
        assert environment["PGSSLROOTCERT"] == f"{mount['mountPath']}/ca.crt"


# ── where they run, and how many ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("source", manifests.ALL)
def test_every_selector_finds_its_own_pods_and_no_others(source: str) -> None:
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in manifests.of_kind(source, "Deployment", "Job")
    }
    for each in manifests.of_kind(source, "Deployment"):
        name = each["metadata"]["name"]
        found = [
            p for p, labels in pods.items() if manifests.matches(each["spec"]["selector"], labels)
        ]
        assert found == [name]
        for spread in pod(each).get("topologySpreadConstraints", []):
            assert spread["labelSelector"] == each["spec"]["selector"]
    for budget in manifests.of_kind(source, "PodDisruptionBudget"):
        found = [
            p for p, labels in pods.items() if manifests.matches(budget["spec"]["selector"], labels)
        ]
        assert found == [budget["metadata"]["name"]]


@pytest.mark.parametrize("source", manifests.ALL)
def test_every_deployment_has_a_disruption_budget_and_resources(source: str) -> None:
    budgets = {
        each["metadata"]["name"] for each in manifests.of_kind(source, "PodDisruptionBudget")
    }
    for each in manifests.workloads(source):
        if each["kind"] == "Deployment":
            assert each["metadata"]["name"] in budgets
        asked = manifests.container(each)["resources"]
        assert {"cpu", "memory"} <= set(asked["requests"])


@pytest.mark.parametrize("source", manifests.ALL)
def test_replicas_are_set_by_the_chart_or_by_the_autoscaler_alone(source: str) -> None:
    scaled = {
        each["spec"]["scaleTargetRef"]["name"]
        for each in manifests.of_kind(source, "HorizontalPodAutoscaler", "ScaledObject")
    }
    there = {each["metadata"]["name"] for each in manifests.of_kind(source, "Deployment")}
    assert scaled <= there
    for each in manifests.of_kind(source, "Deployment"):
        assert ("replicas" in each["spec"]) == (each["metadata"]["name"] not in scaled)
