"""Who may talk to whom: what is needed is let through, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubernetes import manifests
from tests.kubernetes.manifests import Object

GUARDED = [source for source in manifests.ALL if source != "chart:minimal"]  # which has it off
STRANGER: Object = {"podSelector": {"matchLabels": {"app": "stranger"}}}


def labels_of(source: str, component: str) -> Object:
    found = [w for w in manifests.workloads(source) if manifests.component(w) == component]
    labels: Object = found[0]["spec"]["template"]["metadata"]["labels"]
    return labels


def rules(source: str, labels: Object, direction: str) -> Iterator[Object]:
    for policy in manifests.of_kind(source, "NetworkPolicy"):
        spec = policy["spec"]
        if manifests.matches(spec["podSelector"], labels) and direction in spec["policyTypes"]:
            yield from spec.get(direction.lower(), [])


def is_let(source: str, component: str, direction: str, peer: Object, port: int | str) -> bool:
    """Whether a rule names this peer and port; one without peers or ports allows all."""
    side = "from" if direction == "Ingress" else "to"
    for rule in rules(source, labels_of(source, component), direction):
        peers, ports = rule.get(side), rule.get("ports")
        if (not peers or peer in peers) and (not ports or port in [p["port"] for p in ports]):
            return True
    return False


def components(source: str) -> set[str]:
    return {manifests.component(each) for each in manifests.workloads(source)}


def given(source: str) -> Object:
    if source.startswith("chart:"):
        merged = manifests.chart().merged(manifests.values(source.removeprefix("chart:")))
        return dict(merged["networkPolicy"])
    policy = dict(manifests.chart().values["networkPolicy"])
    if source == "overlays/development":
        mine = {"app.kubernetes.io/name": "postgresql", "app.kubernetes.io/instance": "faultline"}
        policy["database"] = [{"podSelector": {"matchLabels": mine}}]
    return policy


@pytest.mark.parametrize("source", GUARDED)
def test_every_pod_is_denied_everything_first(source: str) -> None:
    policies = manifests.of_kind(source, "NetworkPolicy")
    [deny] = [each for each in policies if each["metadata"]["name"].endswith("-deny")]
    assert set(deny["spec"]) == {"podSelector", "policyTypes"}
    assert set(deny["spec"]["policyTypes"]) == {"Ingress", "Egress"}
    for each in manifests.workloads(source):
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert manifests.matches(deny["spec"]["podSelector"], labels)


@pytest.mark.parametrize("source", GUARDED)
def test_no_rule_allows_every_peer(source: str) -> None:
    """An empty list of peers, or none, allows every peer; so does an empty rule."""
    for policy in manifests.of_kind(source, "NetworkPolicy"):
        for rule in policy["spec"].get("ingress", []):
            assert rule.get("from"), policy["metadata"]["name"]
            assert rule.get("ports")
        for rule in policy["spec"].get("egress", []):
            assert rule.get("to"), policy["metadata"]["name"]
            assert rule.get("ports")


@pytest.mark.parametrize("source", GUARDED)
def test_every_part_reaches_the_database_and_its_name(source: str) -> None:
    policy = given(source)
    for component in components(source):
        for peer in policy["database"]:
            assert is_let(source, component, "Egress", peer, policy["databasePort"])
        for peer in policy["dns"]:
            assert is_let(source, component, "Egress", peer, 53)
        assert not is_let(source, component, "Egress", STRANGER, policy["databasePort"])


@pytest.mark.parametrize("source", GUARDED)
def test_only_prometheus_may_scrape_metrics(source: str) -> None:
    [prometheus] = given(source)["metrics"]
    for component, port in (("worker", "metrics"), ("reconciler", "metrics"), ("api", "http")):
        assert is_let(source, component, "Ingress", prometheus, port)
        assert not is_let(source, component, "Ingress", STRANGER, port)


@pytest.mark.parametrize("source", GUARDED)
def test_only_the_configured_peers_reach_the_api_and_the_inspector(
    source: str,
) -> None:
    policy = given(source)
    for component in ("api", "inspector"):
        for peer in policy[component]:
            assert is_let(source, component, "Ingress", peer, "http")
        assert not is_let(source, component, "Ingress", STRANGER, "http")
    assert bool(policy["inspector"]) == (source == "chart:everything")


@pytest.mark.parametrize("source", GUARDED)
def test_the_inspector_reaches_the_api_where_it_may_act(source: str) -> None:
    inspector, api = labels_of(source, "inspector"), labels_of(source, "api")
    there = reached(source, "inspector", "Egress", "to", api)
    back = reached(source, "api", "Ingress", "from", inspector)
    acts = any(
        one.startswith("--api-url=")
        for each in manifests.workloads(source)
        if manifests.component(each) == "inspector"
        for one in manifests.container(each)["args"]
    )
    # By default every pod of the namespace may call the API; the way to it is open only where it is used.
    assert there is acts
    assert back


def reached(source: str, component: str, direction: str, side: str, other: Object) -> bool:
    return any(
        "podSelector" in peer
        and "namespaceSelector" not in peer
        and manifests.matches(peer["podSelector"], other)
        and any(port["port"] in ("http", 8000) for port in rule["ports"])
        for rule in rules(source, labels_of(source, component), direction)
        for peer in rule.get(side, [])
    )


@pytest.mark.parametrize("source", GUARDED)
def test_every_named_port_of_a_policy_is_one_of_its_pods(source: str) -> None:
    for policy in manifests.of_kind(source, "NetworkPolicy"):
        pods = [
            each
            for each in manifests.workloads(source)
            if manifests.matches(
                policy["spec"]["podSelector"], each["spec"]["template"]["metadata"]["labels"]
            )
        ]
        assert pods, policy["metadata"]["name"]
        for rule in policy["spec"].get("ingress", []):
            for port in rule["ports"]:
                for each in pods:
                    named = {p["name"] for p in manifests.container(each)["ports"]}
                    assert port["port"] in named


def test_pods_reach_the_trace_collector_where_tracing_is_on() -> None:
    [collector] = given("chart:everything")["otlp"]
    for component in components("chart:everything"):
        assert is_let("chart:everything", component, "Egress", collector, 4318)
    assert not _any_port("chart:default", 4318)


def _any_port(source: str, number: int) -> bool:
    policies: list[dict[str, Any]] = manifests.of_kind(source, "NetworkPolicy")
    return any(
        port["port"] == number
        for policy in policies
        for rule in policy["spec"].get("egress", [])
        for port in rule.get("ports", [])
    )


def test_only_workers_reach_the_destinations_of_handlers() -> None:
    internet = {"ipBlock": {"cidr": "0.0.0.0/0"}}
    assert is_let("chart:everything", "worker", "Egress", internet, 443)
    assert not is_let("chart:everything", "api", "Egress", internet, 443)
    assert not is_let("chart:default", "worker", "Egress", internet, 443)
