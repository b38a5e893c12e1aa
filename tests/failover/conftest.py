"""One primary for all tests, and a new standby for each test that promotes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest

from faultline.embedded import temporary_server
from faultline.postgres.migrate import migrate
from faultline_drills.cluster import MEMBER_SETTINGS, Cluster, ClusterMember, missing_requirement
from faultline_drills.context import DrillContext
from faultline_drills.scenario import DrillSettings
from tests.conftest import roomy_memory

Connection = psycopg.Connection[Any]
Open = Callable[[ClusterMember], Connection]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A primary with the schema; a promoted standby does not affect it."""
    if reason := missing_requirement():
        pytest.skip(reason)
    with ExitStack() as stack:
        server = stack.enter_context(
            temporary_server(settings=MEMBER_SETTINGS, parent=roomy_memory())
        )
        migrate(server.url)
        drill = DrillContext(server.url, DrillSettings(), server=server, stack=stack)
        yield Cluster(drill, standbys=0)


@pytest.fixture
def primary(cluster: Cluster) -> ClusterMember:
    """With no unfinished jobs: those of the last test are cancelled."""
    with psycopg.connect(cluster.primary.url, autocommit=True) as conn:
        conn.execute(
            "SELECT faultline.cancel(id) FROM faultline.jobs WHERE state IN ('queued', 'running')"
        )
    return cluster.primary


@contextmanager
def _new_standby(cluster: Cluster) -> Iterator[ClusterMember]:
    made = cluster.add_standby()
    try:
        yield made
    finally:
        cluster.members.remove(made)
        made.server.stop(mode="immediate")


@pytest.fixture
def standby(cluster: Cluster) -> Iterator[ClusterMember]:
    with _new_standby(cluster) as made:
        yield made


@pytest.fixture
def other_standby(cluster: Cluster, standby: ClusterMember) -> Iterator[ClusterMember]:
    with _new_standby(cluster) as made:
        yield made


@pytest.fixture
def open_session() -> Iterator[Open]:
    with ExitStack() as opened:

        def make(member: ClusterMember) -> Connection:
            return opened.enter_context(psycopg.connect(member.url, autocommit=True))

        yield make
