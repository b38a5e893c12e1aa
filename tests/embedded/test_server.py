"""One embedded server, tested with real servers."""

from __future__ import annotations

import os
import pwd
import signal
import socket
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import psycopg
import pytest

from faultline import embedded
from faultline.embedded import server as server_module
from faultline.errors import EmbeddedServerError
from tests.slow import slow_unless
from tests.waiting import wait_until

from .helpers import query_value

MAJORS = sorted(embedded.all_binaries())


@pytest.mark.parametrize("major", slow_unless(MAJORS, *MAJORS[-1:]))
def test_every_major_version_starts_and_leaves_no_process_and_no_data(major: int) -> None:
    with embedded.temporary_server(binaries=embedded.find_binaries(str(major))) as server:
        pid = server.pid
        assert pid is not None
        assert query_value(server.url, "SHOW server_version").split(".")[0] == str(major)
    assert not server.running
    assert not Path(f"/proc/{pid}").exists()
    assert not server.data_dir.parent.exists()


def test_durability_is_postgresqls_default_and_only_loopback_is_open() -> None:
    with embedded.temporary_server() as server:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert query_value(server.url, f"SHOW {setting}") == "on"
        assert query_value(server.url, "SHOW listen_addresses") == "127.0.0.1"
        assert query_value(server.url, "SHOW unix_socket_directories") == ""
        assert query_value(server.url, "SHOW max_prepared_transactions") == "10"


@pytest.mark.slow
def test_a_server_requires_its_password_which_only_its_owner_can_read() -> None:
    with embedded.temporary_server() as server:
        _, _, address = server.url.partition("@")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(f"postgresql://postgres:guess@{address}")
        mode = (server.data_dir / "faultline.password").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600


def test_a_server_killed_with_sigkill_restarts_with_every_committed_row(
    server: embedded.Server,
) -> None:
    server.start()
    url = server.url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")
        server.kill()  # while a backend is connected
        assert not server.running
        server.start()
    assert server.url == url
    assert query_value(url, "SELECT count(*) FROM kept") == "1000"


@pytest.mark.slow
def test_a_restart_waits_for_the_backends_that_a_killed_server_left_behind(
    server: embedded.Server,
) -> None:
    server.start()
    with psycopg.connect(server.url, autocommit=True) as connection:
        orphan = connection.info.backend_pid
        os.kill(orphan, signal.SIGSTOP)  # so that it does not notice that its postmaster died
        server.kill()
        with ThreadPoolExecutor(1) as pool:
            try:
                restart = pool.submit(server.start)
                wait_until(lambda: "still in use" in server.log_path.read_text())
            finally:
                os.kill(orphan, signal.SIGCONT)
            restart.result(timeout=30)
    assert query_value(server.url, "SELECT 1") == "1"


@pytest.mark.slow
def test_a_server_restarts_after_its_old_pid_was_reused(
    server: embedded.Server,
) -> None:
    server.start()
    server.kill()
    account = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
    with subprocess.Popen(["/bin/sleep", "60"], user=account) as stranger:
        try:
            pid_file = server.data_dir / "postmaster.pid"
            _, _, rest = pid_file.read_text().partition("\n")
            pid_file.write_text(f"{stranger.pid}\n{rest}")
            assert not server.running
            server.start()
            assert server.pid != stranger.pid
            assert stranger.poll() is None
            assert query_value(server.url, "SELECT 1") == "1"
        finally:
            stranger.kill()


@pytest.mark.slow
def test_a_stopped_server_restarts_with_the_same_url(server: embedded.Server) -> None:
    server.start()
    url = server.url
    server.stop()
    assert not server.running
    embedded.Server(server.data_dir).start()
    assert server.url == url
    assert query_value(url, "SELECT 1") == "1"


@pytest.mark.slow
def test_a_port_taken_before_the_start_is_replaced_by_another(
    server: embedded.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other_server:
        taken = other_server.getsockname()[1]
        free_port = server_module._free_port
        offers = chain([taken], iter(free_port, 0))
        monkeypatch.setattr(server_module, "_free_port", lambda: next(offers))
        server.start()
    assert f":{taken}/" not in server.url
    assert query_value(server.url, "SELECT 1") == "1"


def test_a_configured_port_that_is_taken_is_an_error(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other_server:
        server = embedded.Server(home / "data", port=other_server.getsockname()[1])
        with pytest.raises(EmbeddedServerError, match="Address already in use"):
            server.start()
    assert not server.running


@pytest.mark.slow
def test_a_failed_start_shows_the_end_of_the_log_and_what_to_do(home: Path) -> None:
    server = embedded.Server(home / "data", settings={"shared_buffers": "plenty"})
    with pytest.raises(EmbeddedServerError) as failure:
        server.start()
    assert 'invalid value for parameter "shared_buffers": "plenty"' in str(failure.value)
    assert str(server.log_path) in str(failure.value)
    assert "DATABASE_URL" in str(failure.value)
    assert not server.running


def test_a_directory_with_other_files_is_not_changed(home: Path) -> None:
    (home / "data").mkdir()
    (home / "data" / "thesis.txt").write_text("all of it")
    with pytest.raises(EmbeddedServerError, match="neither empty nor a PostgreSQL"):
        embedded.Server(home / "data").start()
    assert [path.name for path in (home / "data").iterdir()] == ["thesis.txt"]
