"""Worker settings: contradictions, defaults, and ids."""

from __future__ import annotations

from typing import Any

import pytest

from faultline import InvalidSettings
from faultline.config import WorkerSettings

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"concurrency": 0}, "concurrency must be 1 to 10,000, not 0"),
    ({"concurrency": 10_001}, "concurrency must be 1 to 10,000, not 10001"),
    ({"lease_seconds": 0.05}, "lease_seconds must be 0.1 to"),
    ({"lease_seconds": -1}, "lease_seconds must be 0.1 to"),
    ({"lease_seconds": float("nan")}, "lease_seconds"),
    ({"poll_seconds": 0}, "poll_seconds must be more than 0"),
    ({"drain_seconds": -1}, "drain_seconds must not be negative"),
    ({"commit_batch": 0}, "commit_batch must be 1 to 10,000"),
    ({"max_jobs": -1}, "max_jobs must not be negative"),
    ({"lease_seconds": 10, "heartbeat_seconds": 5}, "two heartbeats of 5 s and the margin of 1 s"),
    ({"lease_seconds": 10, "heartbeat_seconds": -1}, "heartbeat"),
    ({"lease_seconds": 1, "fence_margin_seconds": 0.9}, "the margin of 0.9 s need 1.4 s"),
    ({"fence_margin_seconds": -1}, "margin"),
    ({"queues": "default"}, "queue"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_a_contradiction_is_refused_with_the_reason(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        WorkerSettings(**settings)
    assert message in str(caught.value)
    assert caught.value.code == "invalid_settings"


def test_the_defaults_follow_the_lease() -> None:
    settings = WorkerSettings(lease_seconds=20)
    assert (settings.heartbeat_seconds, settings.fence_margin_seconds) == (5, 2)


def test_every_incarnation_of_a_worker_has_an_id_of_its_own() -> None:
    assert WorkerSettings().worker_id != WorkerSettings().worker_id
