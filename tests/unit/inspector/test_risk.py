"""The score of stale risk: the weight of each reason, and the levels."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest

from faultline.inspector import risk
from faultline.inspector.risk import RiskInputs, RiskLevel
from faultline.inspector.worker_view import WorkerView
from faultline.statements.leases import LeaseSummary
from faultline.statements.workers import WorkerStatus

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def codes(**given: Any) -> list[str]:
    return [reason.code for reason in risk.assess(RiskInputs(**given)).reasons]


@pytest.mark.parametrize(
    ("given", "code", "weight", "level"),
    [
        ({"expired_leases": 1, "longest_expired_seconds": 0.3}, "leases_expired", 25, "medium"),
        (
            {"expired_leases": 1, "longest_expired_seconds": 2.0},
            "leases_not_taken_back",
            60,
            "high",
        ),
        ({"worst_remaining_share": 0.49}, "lease_running_low", 15, "low"),
        ({"worst_remaining_share": 0.09}, "lease_nearly_spent", 30, "medium"),
        ({"heartbeat_lateness_seconds": 0.1}, "heartbeat_late", 15, "low"),
        ({"gone_workers_with_jobs": 1}, "workers_gone_with_jobs", 30, "medium"),
        ({"recently_lost_workers": 2}, "workers_lost", 15, "low"),
        ({"recent_rejections": 1}, "stale_writes_refused", 25, "medium"),
        ({"recent_rejections": 10}, "stale_writes_refused", 40, "medium"),
    ],
)
def test_each_sign_has_its_weight(
    given: dict[str, Any], code: str, weight: int, level: str
) -> None:
    found = risk.assess(RiskInputs(active_workers=1, **given))

    assert [(reason.code, reason.weight) for reason in found.reasons] == [(code, weight)]
    assert (found.score, found.level) == (weight, RiskLevel(level))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"active_workers": 8, "worst_remaining_share": 0.5},
        {"active_workers": 8, "worst_remaining_share": 1.0},
    ],
)
def test_a_healthy_and_an_idle_queue_have_no_risk_reason(given: dict[str, Any]) -> None:
    found = risk.assess(RiskInputs(**given))

    assert (found.level, found.score, found.reasons) == (RiskLevel.LOW, 0, [])


def test_weights_add_up_and_the_heaviest_reason_is_first() -> None:
    found = risk.assess(
        RiskInputs(
            worst_remaining_share=0.3,
            heartbeat_lateness_seconds=2.0,
            gone_workers_with_jobs=1,
        )
    )

    assert (found.score, found.level) == (60, RiskLevel.HIGH)
    assert found.reasons[0].code == "workers_gone_with_jobs"


def test_the_score_has_an_end() -> None:
    found = risk.assess(
        RiskInputs(
            expired_leases=5,
            longest_expired_seconds=9.0,
            heartbeat_lateness_seconds=2.0,
            gone_workers_with_jobs=1,
            recent_rejections=99,
        )
    )

    assert found.score == 100


def test_an_expired_lease_is_not_also_running_low() -> None:
    assert codes(expired_leases=1, worst_remaining_share=0.0) == ["leases_expired"]


def test_the_document_has_the_names_that_clients_read() -> None:
    given = RiskInputs(active_workers=8, recent_rejections=1)
    document = risk.assess(given).document()

    assert document["stale_risk"] == "medium"
    assert document["active_workers"] == 8
    assert document["inputs"] == asdict(given)


@pytest.mark.parametrize(
    ("share", "gone", "level"),
    [(0.5, False, "low"), (0.49, False, "medium"), (0.09, False, "high"), (1.0, True, "high")],
)
def test_a_leases_risk_depends_on_its_remaining_time_and_its_owner(
    share: float, gone: bool, level: str
) -> None:
    assert risk.of_lease(share, owner_is_gone=gone) is RiskLevel(level)


def worker(status: WorkerStatus, *, running: int = 0, lost: float | None = None) -> WorkerView:
    times = (MOMENT, MOMENT, 0.0)
    return WorkerView("w", "host", 1, status, ["default"], *times, running, True, lost)


def test_workers_count_as_active_gone_or_lost_by_their_status() -> None:
    workers = [
        worker(WorkerStatus.ALIVE, running=3),
        worker(WorkerStatus.DRAINING, running=1),
        worker(WorkerStatus.SILENT, running=2),
        worker(WorkerStatus.SILENT),
        worker(WorkerStatus.LOST, running=1),
        worker(WorkerStatus.LOST, lost=299.0),
        worker(WorkerStatus.LOST, lost=301.0),
    ]
    found = risk.inputs(LeaseSummary(4, 0, None, 0.8, 0.0), workers, 0)

    assert found.active_workers == 2
    assert found.gone_workers_with_jobs == 2
    assert found.recently_lost_workers == 1
