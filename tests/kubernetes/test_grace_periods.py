"""Pods are stopped by SIGTERM alone, with a grace period that is long enough."""

from __future__ import annotations

import pytest

from faultline.api.api_settings import ApiSettings
from faultline.inspector.inspector_settings import DRAIN_SECONDS as INSPECTOR_DRAIN_SECONDS
from faultline.workers import (
    bounded_calls,
    children,
    control_session,
    handler_resources,
    registration,
    worker,
)
from tests.kubernetes import manifests
from tests.kubernetes.manifests import Object


def pause_seconds(workload: Object) -> int:
    hook = manifests.container(workload).get("lifecycle", {}).get("preStop")
    return 0 if hook is None else int(hook["sleep"]["seconds"])


def after_the_drain_seconds() -> float:
    """How long a worker may take after its drain, if every wait lasts to its limit."""
    return (
        control_session._LAST_CALL_SECONDS
        + 3 * worker._ABORT_GRACE_SECONDS
        + 3 * worker._CLOSE_SECONDS
        + registration._LAST_WRITE_SECONDS
        + bounded_calls._CLOSE_SECONDS
        + children._SHUTDOWN_SECONDS
        + 2 * handler_resources._CLOSE_SECONDS
    )


@pytest.mark.parametrize("source", manifests.ALL)
def test_a_worker_is_not_killed_before_it_has_drained(source: str) -> None:
    workers = [w for w in manifests.workloads(source) if manifests.component(w) == "worker"]
    assert workers
    for each in workers:
        drain = float(manifests.option(each, "drain-seconds"))
        needed = pause_seconds(each) + drain + after_the_drain_seconds()
        assert manifests.pod(each)["terminationGracePeriodSeconds"] >= needed
        # Nor does a node that is emptied wait for long without a reason.
        assert manifests.pod(each)["terminationGracePeriodSeconds"] <= needed + 10


def test_each_queue_has_the_grace_period_of_its_own_drain() -> None:
    graces = {
        each["metadata"]["name"]: manifests.pod(each)["terminationGracePeriodSeconds"]
        for each in manifests.workloads("chart:queues")
        if manifests.component(each) == "worker"
    }
    assert graces["faultline-worker-billing"] == graces["faultline-worker-mail"] + 100
    assert graces["faultline-worker-reports"] == graces["faultline-worker-mail"] - 20


@pytest.mark.parametrize("source", manifests.ALL)
def test_the_api_and_the_inspector_have_time_to_answer_what_was_asked(source: str) -> None:
    for each in manifests.workloads(source):
        grace = manifests.pod(each).get("terminationGracePeriodSeconds", 0)
        match manifests.component(each):
            case "api":
                drain = float(manifests.option(each, "drain-seconds"))
                assert drain == ApiSettings.drain_seconds
                assert pause_seconds(each) > 0
                assert grace > pause_seconds(each) + drain
            case "inspector":
                assert pause_seconds(each) > 0
                assert grace > pause_seconds(each) + INSPECTOR_DRAIN_SECONDS


@pytest.mark.parametrize("source", manifests.ALL)
def test_no_hook_sends_a_signal(source: str) -> None:
    """A second SIGTERM would make the worker release its running jobs at once."""
    for each in manifests.workloads(source):
        hook = manifests.container(each).get("lifecycle", {}).get("preStop", {})
        assert set(hook) <= {"sleep"}


@pytest.mark.parametrize("source", manifests.ALL)
def test_a_rollout_removes_no_pod_before_another_is_ready(source: str) -> None:
    for each in manifests.workloads(source):
        if each["kind"] == "Deployment":
            assert each["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
