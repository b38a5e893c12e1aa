"""TLS to the database is verified or refused; the server accepts nothing else."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psycopg
import pytest
from psycopg import conninfo

from faultline.embedded import Server, all_binaries
from faultline.embedded.process import chown_to_server_account, reachable_binaries
from faultline.embedded.server import create_data_directory
from faultline.errors import DatabaseUnavailable
from faultline.postgres.sessions import connect
from tests.api.served import make_key
from tests.cli.conftest import invoke
from tests.conftest import TEST_SETTINGS
from tests.security.certificates import Authority
from tests.security.services import APP, run, services, wait_while_running

HOST = "db.faultline.test"
HBA = "hostssl all all 127.0.0.1/32 scram-sha-256\n"


@dataclass(frozen=True)
class Secured:
    server: Server
    authority: Authority
    stranger: Authority

    def url(self, **options: str) -> str:
        """Verified in full, unless an option says otherwise."""
        chosen = {"host": HOST, "hostaddr": "127.0.0.1", "sslmode": "verify-full"}
        chosen |= {"sslrootcert": str(self.authority.root), **options}
        return conninfo.make_conninfo(self.server.url, **chosen)


def _binaries_with_openssl() -> Path:
    for binaries in all_binaries().values():
        config = binaries / "pg_config"
        if config.exists():
            ran = subprocess.run([config, "--configure"], capture_output=True, timeout=10)
            if b"openssl" in ran.stdout:
                return binaries
    pytest.skip(
        "no PostgreSQL here was built with OpenSSL, the embedded ones are not:"
        " apt-get install postgresql"
    )


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    binaries = _binaries_with_openssl()
    home = Path(tempfile.mkdtemp(prefix="faultline-tls-"))
    home.chmod(0o711)
    try:
        authority, stranger = Authority(home, "authority"), Authority(home, "stranger")
        authority.root.chmod(0o644)
        data = home / "data"
        create_data_directory(data, reachable_binaries(binaries), 30)
        for made, name in zip(authority.certify(HOST), ("server.crt", "server.key"), strict=True):
            shutil.copy(made, data / name)
            (data / name).chmod(0o600)
            chown_to_server_account(data / name)
        (data / "pg_hba.conf").write_text(HBA)
        settings = {"ssl": "on", "ssl_cert_file": "server.crt", "ssl_key_file": "server.key"}
        settings |= TEST_SETTINGS
        server = Server(data, binaries=binaries, settings=settings, ephemeral=True)
        server.start()
        try:
            yield Secured(server, authority, stranger)
        finally:
            server.stop(mode="immediate")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def test_a_verified_connection_is_made_and_doctor_says_so(secured: Secured) -> None:
    with connect(secured.url()) as conn:
        assert conn.pgconn.ssl_in_use

    checks = invoke(secured.url(), "doctor", "--json").json["checks"]
    by_name = {check["name"]: check for check in checks}
    assert by_name["encryption"]["level"] == "ok"
    assert by_name["encryption"]["says"].startswith("TLSv1.")
    assert by_name["encryption"]["says"].endswith("certificate and host name verified")


@pytest.mark.parametrize(
    ("options", "because"),
    [
        ({"sslrootcert": "stranger"}, "certificate verify failed"),
        ({"host": "localhost"}, 'does not match host name "localhost"'),
        ({"sslmode": "disable"}, "no encryption"),
        ({"sslrootcert": "/nowhere/root.crt"}, "does not exist"),
    ],
    ids=["another authority", "another host", "no encryption", "no root"],
)
def test_a_server_that_cannot_be_verified_is_refused(
    secured: Secured, options: dict[str, str], because: str
) -> None:
    if options.get("sslrootcert") == "stranger":
        options = {"sslrootcert": str(secured.stranger.root)}
    url = secured.url(**options)

    with pytest.raises(DatabaseUnavailable, match=because):
        connect(url)


def test_a_command_that_cannot_verify_the_server_says_so(secured: Secured) -> None:
    listed = invoke(secured.url(host="localhost"), "jobs", "list")

    assert "does not match host name" in listed.refused("database_unavailable").message


@pytest.mark.slow
def test_every_process_connects_with_tls(secured: Secured) -> None:
    """By the environment alone: the URL names no mode, and libpq's own variables do."""
    url = secured.url()
    plain = {
        key: value for key, value in conninfo.conninfo_to_dict(url).items() if "ssl" not in key
    }
    environment = {
        "DATABASE_URL": conninfo.make_conninfo("", **plain),
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": str(secured.authority.root),
    }
    assert run(["migrate"], environment).returncode == 0
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("CREATE TABLE public.payments (invoice integer PRIMARY KEY)")
    key = make_key(url)
    with services() as start:
        api = start("api", "--port", "0", **environment)
        worker = start("--app", APP, "worker", **environment)
        job = {"task": "shop.charge", "payload": {"invoice": 1}}
        headers = {"Authorization": f"Bearer {key}"}
        sent = httpx2.post(f"{api.address()}/jobs", json=job, headers=headers, timeout=30)
        assert sent.status_code == 201, sent.text
        with psycopg.connect(url, autocommit=True) as conn:
            paid = "SELECT count(*) = 1 FROM public.payments"
            wait_while_running(lambda: bool(conn.execute(paid).fetchone() == (True,)), api, worker)

            def sessions() -> dict[str, bool]:
                """Whether all of that name are encrypted."""
                found = conn.execute(
                    "SELECT a.application_name, bool_and(s.ssl) FROM pg_stat_activity AS a"
                    " JOIN pg_stat_ssl AS s ON s.pid = a.pid"
                    " WHERE a.application_name LIKE 'faultline %' GROUP BY 1"
                )
                return dict(found.fetchall())

            expected = {"faultline api", "faultline reconciler"}
            wait_while_running(lambda: expected <= set(sessions()), api, worker)
            seen = sessions()

    assert all(seen.values()), seen
