"""`faultline doctor` on a cluster, and for an account named like the schema."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import conninfo, sql

from faultline_drills.cluster import Cluster, ClusterMember
from tests.cli.conftest import Outcome, invoke


def found(outcome: Outcome, name: str) -> dict[str, Any]:
    (check,) = [check for check in outcome.json["checks"] if check["name"] == name]
    return dict(check)


def names(outcome: Outcome) -> set[str]:
    return {str(check["name"]) for check in outcome.json["checks"]}


def test_doctor_advises_the_setting_on_a_plain_cluster_and_the_manager_on_a_managed_one(
    cluster: Cluster, primary: ClusterMember, standby: ClusterMember
) -> None:
    plain = invoke(primary.url, "doctor", "--json")
    assert "synchronous_standby_names" in found(plain, "synchronous standbys")["advice"]
    assert "managed cluster" not in names(plain)
    # The name of Patroni's own sessions.
    with psycopg.connect(primary.url, application_name="Patroni heartbeat"):
        managed = invoke(primary.url, "doctor", "--json")
    check = found(managed, "synchronous standbys")
    assert (check["level"], check["advice"].split()[0]) == ("warning", "patronictl")
    failover = found(managed, "managed cluster")
    assert failover["level"] == "ok"
    assert "ttl" in failover["says"]
    assert "--lease-seconds" in failover["advice"]


@pytest.mark.parametrize(
    ("role", "manager"),
    [("streaming_replica", "CloudNativePG"), ("rds_superuser", "a managed service")],
)
def test_doctor_recognises_other_managers_by_their_roles(
    cluster: Cluster, primary: ClusterMember, role: str, manager: str
) -> None:
    with psycopg.connect(primary.url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(role)))
        try:
            check = found(invoke(primary.url, "doctor", "--json"), "managed cluster")
        finally:
            admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
    assert f"managed by {manager}" in check["says"]


def test_doctor_and_migrate_warn_an_account_named_like_the_schema(
    cluster: Cluster, primary: ClusterMember
) -> None:
    with psycopg.connect(primary.url, autocommit=True) as admin:
        admin.execute("CREATE ROLE faultline LOGIN SUPERUSER PASSWORD 'secret'")
        try:
            own = conninfo.make_conninfo(primary.url, user="faultline", password="secret")
            with psycopg.connect(own, autocommit=True) as conn:
                conn.execute("CREATE TABLE payments ()")
            diagnosis = invoke(own, "doctor", "--json")
            migrated = invoke(own, "migrate")
        finally:
            admin.execute("DROP OWNED BY faultline; DROP ROLE faultline")
    assert found(diagnosis, "search_path")["advice"] == (
        "ALTER ROLE faultline SET search_path = public"
    )
    assert "payments" in found(diagnosis, "tables in the schema faultline")["says"]
    assert "ALTER ROLE faultline SET search_path = public" in migrated.out
    healthy = invoke(primary.url, "doctor", "--json")
    assert found(healthy, "search_path")["level"] == "ok"
    assert "tables in the schema faultline" not in names(healthy)
