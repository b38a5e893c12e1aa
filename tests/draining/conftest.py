"""The fixtures of tests/processes: observed database, processes and proxy."""

from __future__ import annotations

from tests.processes.conftest import database, fleet, proxy  # noqa: F401 - fixtures
