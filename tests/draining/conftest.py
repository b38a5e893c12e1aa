"""The fixtures of tests/processes: the observed database, the processes and a proxy."""

from __future__ import annotations

from tests.processes.conftest import database, fleet, proxy  # noqa: F401 - fixtures
