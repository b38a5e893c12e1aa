"""The stage, the fleet and the disturbed network of the tests of processes."""

from __future__ import annotations

from tests.processes.conftest import fleet, proxy, stage  # noqa: F401 - fixtures
