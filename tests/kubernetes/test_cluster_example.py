"""The CloudNativePG example: no acknowledged commit is lost; its accounts suffice.

No schema here covers CloudNativePG's fields: the tests spell out the ones that matter.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from faultline import embedded
from faultline.postgres.migrate import migrate
from tests.conftest import TEST_SETTINGS, administer, roomy_memory, url_of
from tests.kubernetes import manifests
from tests.kubernetes.manifests import K8S
from tests.kubernetes.reading import read_all

DOCUMENTS: dict[str, Any] = {
    each["kind"]: each for each in read_all((K8S / "examples" / "cloudnative-pg.yaml").read_text())
}
CLUSTER = DOCUMENTS["Cluster"]["spec"]


def test_a_commit_waits_for_a_standby_and_never_goes_on_alone() -> None:
    synchronous = CLUSTER["postgresql"]["synchronous"]
    assert (synchronous["method"], synchronous["number"], synchronous["dataDurability"]) == (
        "any",
        1,
        "required",
    )
    assert synchronous["failoverQuorum"] is True
    # One that is lost leaves a primary and a standby to answer it.
    assert CLUSTER["instances"] >= 3
    parameters = CLUSTER["postgresql"]["parameters"]
    assert all(isinstance(value, str) for value in parameters.values())
    assert not {"fsync", "synchronous_commit", "synchronous_standby_names"} & set(parameters)


def test_the_network_policies_name_this_cluster() -> None:
    peers = manifests.chart().values["networkPolicy"]["database"]
    name = DOCUMENTS["Cluster"]["metadata"]["name"]
    assert peers == [{"podSelector": {"matchLabels": {"cnpg.io/cluster": name}}}]
    assert DOCUMENTS["ScheduledBackup"]["spec"]["cluster"]["name"] == name


def test_the_authority_of_the_production_overlay_is_this_cluster_s() -> None:
    ca = f"{DOCUMENTS['Cluster']['metadata']['name']}-ca"
    for workload in manifests.workloads("overlays/production"):
        secrets = [
            each["secret"]["secretName"]
            for each in workload["spec"]["template"]["spec"]["volumes"]
            if "secret" in each
        ]
        assert ca in secrets


def test_backups_are_kept_where_the_cluster_puts_its_wal() -> None:
    [plugin] = CLUSTER["plugins"]
    assert plugin["isWALArchiver"] is True
    assert plugin["parameters"]["barmanObjectName"] == DOCUMENTS["ObjectStore"]["metadata"]["name"]
    backup = DOCUMENTS["ScheduledBackup"]["spec"]
    assert backup["method"] == "plugin"
    assert backup["pluginConfiguration"]["name"] == plugin["name"]
    assert len(backup["schedule"].split()) == 6  # seconds first


def test_every_object_of_the_cluster_is_in_one_namespace() -> None:
    namespaces = {each["metadata"]["namespace"] for each in DOCUMENTS.values()}
    assert namespaces == {"faultline"}


def test_the_clusters_accounts_suffice_for_migration_and_processes() -> None:
    """Runs what CloudNativePG would run: the example's SQL, then its managed roles."""
    initdb = CLUSTER["bootstrap"]["initdb"]
    settings = {**TEST_SETTINGS, "password_encryption": "scram-sha-256"}
    with embedded.temporary_server(settings=settings, parent=roomy_memory()) as server:
        administer(server.url, "CREATE ROLE {} LOGIN PASSWORD 'secret'", initdb["owner"])
        administer(server.url, "CREATE DATABASE {} OWNER {}", initdb["database"], initdb["owner"])
        url = url_of(server.url, initdb["database"])
        with psycopg.connect(url, autocommit=True) as superuser:
            for statement in initdb["postInitApplicationSQL"]:
                superuser.execute(statement)
        for role in CLUSTER["managed"]["roles"]:
            assert (role["ensure"], role["login"]) == ("present", True)
            names = [role["name"], *role["inRoles"]]
            places = ", ".join("{}" for _ in role["inRoles"])
            administer(
                server.url, f"CREATE ROLE {{}} LOGIN PASSWORD 'secret' IN ROLE {places}", *names
            )

        migrate(as_account(url, initdb["owner"]), roles=True)

        with psycopg.connect(as_account(url, "api"), autocommit=True) as api:
            api.execute("SELECT FROM faultline.enqueue('hello', '{}')")
            api.execute("SELECT id, prefix, key_hash FROM faultline.api_keys")
        with psycopg.connect(as_account(url, "worker"), autocommit=True) as worker:
            worker.execute("SELECT FROM faultline.claim('w', '{default}', 1, interval '15 s')")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                worker.execute("UPDATE faultline.jobs SET attempts = 0")
        with psycopg.connect(as_account(url, "inspector"), autocommit=True) as inspector:
            assert inspector.execute("SELECT state FROM faultline.jobs").fetchall() == [
                ("running",)
            ]
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                inspector.execute("SELECT FROM faultline.enqueue('hello', '{}')")
        with psycopg.connect(as_account(url, "operator"), autocommit=True) as operator:
            operator.execute("SELECT faultline.bump_epoch('a test')")


def as_account(url: str, name: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{name}:secret@{parts.hostname}:{parts.port}").geturl()
