"""Prometheus scrapes every metrics endpoint, and KEDA queries metrics that exist.

The kinds of the Prometheus Operator and of KEDA are in no schema of Kubernetes': the fields that matter are
checked here.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from faultline.metrics.catalogue import CATALOGUE
from k8s import rules
from tests.kubernetes import manifests
from tests.kubernetes.manifests import ROOT, Object
from tests.kubernetes.reading import read
from tests.monitoring.monitoring_files import Expression
from tests.monitoring.tools import find_program, promtool

MONITORED = ["chart:everything", "chart:queues", "overlays/production"]
SCALED = ["chart:everything", "chart:queues", "overlays/production"]
METRICS = {metric.name: metric for metric in CATALOGUE}


def pods(source: str) -> list[Object]:
    return [w for w in manifests.workloads(source) if w["kind"] == "Deployment"]


# ── who is scraped ───────────────────────────────────────────────────────────────────────────────


def endpoints(monitor: Object) -> list[Object]:
    key = "endpoints" if monitor["kind"] == "ServiceMonitor" else "podMetricsEndpoints"
    found_there: list[Object] = monitor["spec"][key]
    return found_there


@pytest.mark.parametrize("source", MONITORED)
def test_everything_that_serves_metrics_is_scraped_once(source: str) -> None:
    scraped: list[str] = []
    for monitor in manifests.of_kind(source, "PodMonitor"):
        [endpoint] = endpoints(monitor)
        for each in pods(source):
            if manifests.matches(
                monitor["spec"]["selector"], each["spec"]["template"]["metadata"]["labels"]
            ):
                scraped.append(each["metadata"]["name"])
                named = {port["name"] for port in manifests.container(each)["ports"]}
                assert endpoint["port"] in named
    for monitor in manifests.of_kind(source, "ServiceMonitor"):
        [endpoint] = endpoints(monitor)
        [service] = [
            each
            for each in manifests.of_kind(source, "Service")
            if manifests.matches(monitor["spec"]["selector"], each["metadata"]["labels"])
        ]
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
        scraped.append(service["metadata"]["name"])
    serving = [w["metadata"]["name"] for w in pods(source) if manifests.component(w) != "inspector"]
    assert sorted(scraped) == sorted(serving)


@pytest.mark.parametrize("source", MONITORED)
def test_scrapers_present_the_token_that_pods_demand(source: str) -> None:
    secrets = {}
    for each in pods(source):
        volumes = {volume["name"]: volume for volume in manifests.pod(each)["volumes"]}
        path = manifests.environment(each).get("FAULTLINE_METRICS_TOKEN_FILE")
        assert (path is not None) == ("metrics-token" in volumes)
        if path is None:
            continue
        [mount] = [
            m
            for m in manifests.container(each)["volumeMounts"]
            if path.startswith(f"{m['mountPath']}/")
        ]
        assert (mount["name"], mount["readOnly"]) == ("metrics-token", True)
        secret = volumes["metrics-token"]["secret"]
        [item] = secret["items"]
        assert path == f"{mount['mountPath']}/{item['path']}"
        secrets[manifests.component(each)] = {"name": secret["secretName"], "key": item["key"]}
    presented = {}
    for monitor in manifests.of_kind(source, "PodMonitor"):
        [endpoint] = endpoints(monitor)
        if "authorization" in endpoint:
            assert endpoint["authorization"]["type"] == "Bearer"
            component = monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]
            presented[component] = endpoint["authorization"]["credentials"]
    assert presented == secrets
    is_set = source == "chart:everything"
    assert set(secrets) == ({"worker", "reconciler"} if is_set else set())


@pytest.mark.parametrize("source", MONITORED)
def test_jobs_have_the_names_that_rules_and_dashboards_know(source: str) -> None:
    configured = read((ROOT / "monitoring" / "prometheus.yml").read_text())
    known = {each["job_name"] for each in configured["scrape_configs"]}
    replacements = set()
    for monitor in manifests.of_kind(source, "PodMonitor", "ServiceMonitor"):
        for endpoint in endpoints(monitor):
            assert endpoint["path"] == "/metrics"
            [relabeling] = endpoint["relabelings"]
            assert relabeling["targetLabel"] == "job"
            replacements.add(relabeling["replacement"])
    assert replacements == known


def test_the_api_is_scraped_with_a_key_where_its_metrics_are_not_open() -> None:
    for source, is_open in (("chart:queues", True), ("chart:everything", False)):
        [api] = [w for w in manifests.workloads(source) if manifests.component(w) == "api"]
        assert ("--open-metrics" in manifests.container(api)["args"]) is is_open
        [monitor] = manifests.of_kind(source, "ServiceMonitor")
        [endpoint] = endpoints(monitor)
        assert ("authorization" in endpoint) is not is_open


# ── rules ────────────────────────────────────────────────────────────────────────────────────────


def test_the_rules_are_those_of_monitoring() -> None:
    for path, text in rules.embedded().items():
        assert path.read_text() == text, f"{path}: `make k8s` writes it"


@pytest.mark.parametrize("source", ["chart:everything", "overlays/production"])
def test_promtool_accepts_the_embedded_rules(source: str, tmp_path: Path) -> None:
    made = manifests.of_kind(source, "PrometheusRule")
    assert {each["metadata"]["name"].rpartition("-")[2] for each in made} == set(rules.NAMES)
    for each in made:
        file = tmp_path / f"{each['metadata']['name']}.yml"
        file.write_text(yaml.safe_dump(each["spec"]))
        assert "SUCCESS" in promtool("check", "rules", str(file))


@pytest.mark.parametrize("source", ["chart:everything", "overlays/production"])
def test_the_chart_has_every_rule(source: str) -> None:
    made = manifests.of_kind(source, "PrometheusRule")
    ours = [group for each in made for group in each["spec"]["groups"]]
    theirs: list[Any] = []
    for name in rules.NAMES:
        theirs += read((rules.SOURCES / f"{name}.yml").read_text())["groups"]
    if source == "chart:everything":
        for group in theirs:
            for rule in group["rules"]:
                if "alert" in rule:
                    path = rule["annotations"]["runbook_url"]
                    rule["annotations"]["runbook_url"] = f"https://example.com/faultline/{path}"
    assert ours == theirs


# ── scaling by what waits ────────────────────────────────────────────────────────────────────────


def triggers(source: str) -> list[tuple[str, Object]]:
    return [
        (each["metadata"]["name"], trigger)
        for each in manifests.of_kind(source, "ScaledObject")
        for trigger in each["spec"]["triggers"]
    ]


@pytest.mark.parametrize("source", SCALED)
def test_a_queue_is_scaled_by_its_depth_and_by_its_age(source: str) -> None:
    for each in manifests.of_kind(source, "ScaledObject"):
        spec = each["spec"]
        target = manifests.named(source, "Deployment", spec["scaleTargetRef"]["name"])
        assert target["metadata"]["name"] == each["metadata"]["name"]
        assert spec["scaleTargetRef"]["kind"] == "Deployment"
        assert [trigger["name"] for trigger in spec["triggers"]] == ["depth", "age"]
        assert 0 <= spec["minReplicaCount"] <= spec["maxReplicaCount"]
        assert spec["fallback"]["failureThreshold"] > 0
        for trigger in spec["triggers"]:
            assert trigger["type"] == "prometheus"
            # A fallback works for averages alone.
            assert trigger["metricType"] == "AverageValue"
            # KEDA takes texts, and an empty answer for an error rather than for 0.
            assert all(isinstance(value, str) for value in trigger["metadata"].values())
            assert trigger["metadata"]["ignoreNullValues"] == "false"
            assert float(trigger["metadata"]["threshold"]) > 0


@pytest.mark.parametrize("source", SCALED)
def test_keda_asks_for_metrics_and_labels_that_exist(source: str) -> None:
    for name, trigger in triggers(source):
        query = Expression(name, trigger["metadata"]["query"])
        assert query.metrics <= set(METRICS), query
        for metric, label, value in query.matchers:
            assert label in (*METRICS[metric].labels, "namespace"), query  # which a PodMonitor adds
            known = METRICS[metric].values.get(label)
            assert value is None or known is None or value in known


def test_keda_asks_for_the_queues_that_the_worker_claims_from() -> None:
    import re

    for source in SCALED:
        for name, trigger in triggers(source):
            queues = manifests.option(manifests.named(source, "Deployment", name), "queues").split(
                ","
            )
            [asked] = set(re.findall(r'queue=~"([^"]+)"', trigger["metadata"]["query"]))
            for queue in queues:
                assert re.fullmatch(asked, queue)
            assert not re.fullmatch(asked, queues[0].replace(".", "-") + "x")


def test_prometheus_answers_keda_with_one_number(tmp_path: Path) -> None:
    """Waiting and running jobs; 0 for an empty queue; no result without a leader."""
    find_program("promtool")
    asked = [
        t["metadata"]["query"]
        for _, t in triggers("chart:queues")
        if "mail[.]eu" in t["metadata"]["query"]
    ]
    [depth, age] = asked
    file = {"groups": [{"name": "keda", "rules": [
        {"record": "asked:depth", "expr": depth}, {"record": "asked:age", "expr": age}]}]}  # fmt: skip
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(file))
    jobs = 'faultline_queue_jobs{namespace="jobs",queue="%s",state="%s",pod="%s"}'
    oldest = 'faultline_queue_oldest_due_seconds{namespace="jobs",queue="%s",pod="%s"}'
    leading = 'faultline_reconciler_leading{namespace="jobs",pod="a"}'
    full = {
        jobs % ("mail.eu", "due", "a"): 30,
        jobs % ("mail.eu", "due", "b"): 30,  # who has just taken over, and who led before
        jobs % ("mail.eu", "running", "a"): 5,
        jobs % ("mail.eu", "scheduled", "a"): 1000,
        jobs % ("mail:us", "due", "a"): 7,
        jobs % ("mail-eu", "due", "a"): 500,  # not this worker's
        jobs.replace('"jobs"', '"other"') % ("mail.eu", "due", "a"): 9000,
        oldest % ("mail.eu", "a"): 90,
        oldest % ("mail:us", "a"): 12,
        oldest % ("mail-eu", "a"): 4000,
        leading: 1,
    }
    cases = [(full, 42, 90), ({leading: 1}, 0, 0), ({leading: 0}, None, None), ({}, None, None)]
    tests = [
        {
            "interval": "15s",
            "input_series": [{"series": name, "values": str(value)} for name, value in series.items()],
            "promql_expr_test": [
                {"expr": name, "eval_time": "0s",
                 "exp_samples": [] if value is None else [{"labels": name, "value": value}]}
                for name, value in (("asked:depth", waiting), ("asked:age", seconds))
            ],
        }
        for series, waiting, seconds in cases
    ]  # fmt: skip
    (tmp_path / "test.yml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yml"], "tests": tests})
    )
    done = subprocess.run(
        [find_program("promtool"), "test", "rules", "test.yml"],
        cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("source", SCALED)
def test_a_queue_that_falls_back_keeps_its_replicas(source: str) -> None:
    for each in manifests.of_kind(source, "ScaledObject"):
        assert each["spec"]["fallback"]["replicas"] >= 0
        assert each["spec"]["pollingInterval"] > 0
