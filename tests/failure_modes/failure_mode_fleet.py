"""Worker processes that run the tasks of the failure modes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.processes.fleet import Fleet, Process

APP = "tests.failure_modes.apps:app"
LOOP_HEARTBEAT_APP = "tests.failure_modes.loop_heartbeat:app"  # importing it removes a guard


class FailureModeFleet(Fleet):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.app = APP
        self.environment: Mapping[str, str] = {}  # of processes that are started from now on

    def _start(self, name: str, url: str | None, command: list[str]) -> Process:
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in self.environment.items():
                patch.setenv(variable, value)
            return super()._start(name, url, ["--app", self.app, *command])  # the last --app wins
