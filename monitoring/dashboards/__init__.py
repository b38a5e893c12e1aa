"""Grafana dashboards as code; `python -m monitoring.dashboards` writes the JSON."""

from monitoring.dashboards.dashboard import Dashboard
from monitoring.dashboards.database import DATABASE
from monitoring.dashboards.leases import LEASES
from monitoring.dashboards.overview import OVERVIEW
from monitoring.dashboards.queues import QUEUES
from monitoring.dashboards.workers import WORKERS

DASHBOARDS: tuple[Dashboard, ...] = (OVERVIEW, LEASES, WORKERS, QUEUES, DATABASE)

__all__ = ["DASHBOARDS", "Dashboard"]
