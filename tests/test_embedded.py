"""Claims about the embedded PostgreSQL, each checked on real servers."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from faultline import embedded
from faultline.errors import EmbeddedServerError

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def ask(url: str, query: str) -> str:
    with psycopg.connect(url, connect_timeout=10) as connection:
        row = connection.execute(query).fetchone()
        assert row is not None
        return str(row[0])


def wait_until(condition: Callable[[], bool], timeout_seconds: float = 10) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, "the awaited state never came"
        time.sleep(0.01)


def python(program: str, *arguments: str, data_dir: Path | None = None) -> subprocess.Popen[str]:
    chosen = {"FAULTLINE_DATA_DIR": str(data_dir)} if data_dir else {}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        env={**os.environ, **chosen},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def home() -> Iterator[Path]:
    """Like tmp_path, but open to `nobody`, whom servers run as when the tests run as root."""
    path = Path(tempfile.mkdtemp(prefix="faultline-test-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def server(home: Path) -> Iterator[embedded.Server]:
    server = embedded.Server(home / "data")
    yield server
    server.stop(mode="immediate")


# --- one server ---------------------------------------------------------------------------------


@pytest.mark.parametrize("major", sorted(embedded.all_binaries()))
def test_every_major_starts_cold_answers_and_leaves_neither_process_nor_data(major: int) -> None:
    with embedded.temporary_server(binaries=embedded.find_binaries(str(major))) as server:
        pid = server.pid
        assert pid is not None
        assert ask(server.url, "SHOW server_version").split(".")[0] == str(major)
    assert not server.running
    assert not Path(f"/proc/{pid}").exists()
    assert not server.data_dir.parent.exists()


def test_durability_is_postgresqls_own_default_and_only_loopback_is_open() -> None:
    with embedded.temporary_server() as server:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert ask(server.url, f"SHOW {setting}") == "on"
        assert ask(server.url, "SHOW listen_addresses") == "127.0.0.1"
        assert ask(server.url, "SHOW unix_socket_directories") == ""
        assert ask(server.url, "SHOW max_prepared_transactions") == "10"


def test_a_server_refuses_whoever_lacks_its_password_which_only_its_owner_can_read() -> None:
    with embedded.temporary_server() as server:
        _, _, address = server.url.partition("@")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(f"postgresql://postgres:guess@{address}")
        mode = (server.data_dir / "faultline.password").stat().st_mode
        assert stat.S_IMODE(mode) == 0o600


def test_a_server_killed_with_sigkill_comes_back_with_every_committed_row(
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
    assert ask(url, "SELECT count(*) FROM kept") == "1000"


def test_a_restart_waits_for_the_backends_that_a_killed_server_left_behind(
    server: embedded.Server,
) -> None:
    server.start()
    with psycopg.connect(server.url, autocommit=True) as connection:
        orphan = connection.info.backend_pid
        os.kill(orphan, signal.SIGSTOP)  # it cannot notice that its postmaster is gone
        server.kill()
        with ThreadPoolExecutor(1) as pool:
            try:
                restart = pool.submit(server.start)
                wait_until(lambda: "still in use" in server.log_path.read_text())
            finally:
                os.kill(orphan, signal.SIGCONT)
            restart.result(timeout=30)
    assert ask(server.url, "SELECT 1") == "1"


def test_a_server_restarts_after_its_old_pid_went_to_another_process(
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
            assert ask(server.url, "SELECT 1") == "1"
        finally:
            stranger.kill()


def test_a_stopped_server_comes_back_on_the_same_url(server: embedded.Server) -> None:
    server.start()
    url = server.url
    server.stop()
    assert not server.running
    embedded.Server(server.data_dir).start()
    assert server.url == url
    assert ask(url, "SELECT 1") == "1"


def test_a_port_taken_between_choosing_and_starting_costs_another_try(
    server: embedded.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    free_port = embedded._free_port
    with socket.create_server(("127.0.0.1", 0)) as rival:
        taken = rival.getsockname()[1]
        offers = iter([taken, free_port()])
        monkeypatch.setattr(embedded, "_free_port", lambda: next(offers))
        server.start()
    assert f":{taken}/" not in server.url
    assert ask(server.url, "SELECT 1") == "1"


def test_a_taken_port_that_was_asked_for_is_an_error_that_says_so(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as rival:
        server = embedded.Server(home / "data", port=rival.getsockname()[1])
        with pytest.raises(EmbeddedServerError, match="Address already in use"):
            server.start()
    assert not server.running


def test_a_failed_start_shows_the_last_lines_of_the_log_and_what_to_do(home: Path) -> None:
    server = embedded.Server(home / "data", settings={"shared_buffers": "plenty"})
    with pytest.raises(EmbeddedServerError) as failure:
        server.start()
    assert 'invalid value for parameter "shared_buffers": "plenty"' in str(failure.value)
    assert str(server.log_path) in str(failure.value)
    assert "DATABASE_URL" in str(failure.value)
    assert not server.running


def test_a_directory_that_holds_something_else_is_left_alone(home: Path) -> None:
    (home / "data").mkdir()
    (home / "data" / "thesis.txt").write_text("all of it")
    with pytest.raises(EmbeddedServerError, match="neither empty nor a PostgreSQL"):
        embedded.Server(home / "data").start()
    assert [path.name for path in (home / "data").iterdir()] == ["thesis.txt"]


# --- ephemeral servers ----------------------------------------------------------------------------


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError])
def test_a_temporary_server_is_gone_after_any_exception(
    interruption: type[BaseException],
) -> None:
    seen: list[embedded.Server] = []

    def interrupted() -> None:
        with embedded.temporary_server() as server:
            seen.append(server)
            raise interruption

    with pytest.raises(interruption):
        interrupted()
    assert not seen[0].running
    assert not seen[0].data_dir.parent.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal")
def test_an_ephemeral_server_dies_when_its_parent_is_killed_with_sigkill(home: Path) -> None:
    program = """
        import pathlib, sys
        from faultline.embedded import Server
        server = Server(pathlib.Path(sys.argv[1]), ephemeral=True)
        server.start()
        print(server.pid, flush=True)
        sys.stdin.read()
    """
    with python(program, str(home / "data")) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        server = embedded.Server(home / "data")
        assert server.pid == pid
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not embedded._command_line(pid))
    assert not server.running


def test_an_ephemeral_server_outlives_the_thread_that_started_it(home: Path) -> None:
    server = embedded.Server(home / "data", ephemeral=True)
    starter = threading.Thread(target=server.start)
    starter.start()
    starter.join(timeout=30)
    try:
        # A query long enough to be cut short, had the thread's end been taken for the parent's.
        assert ask(server.url, "SELECT 1 FROM pg_sleep(0.3)") == "1"
    finally:
        server.stop(mode="immediate")
    assert not server.data_dir.exists()


# --- the development server ---------------------------------------------------------------------


def test_two_processes_that_ensure_a_server_at_once_get_the_same_one(home: Path) -> None:
    program = """
        import sys
        from faultline import embedded
        sys.stdin.readline()
        print(embedded.ensure_running(), embedded.status().pid)
    """
    data_dir = home / "data"
    with python(program, data_dir=data_dir) as one, python(program, data_dir=data_dir) as two:
        for process in (one, two):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = {process.communicate(timeout=30)[0] for process in (one, two)}
    try:
        assert len(answers) == 1
        url, pid = answers.pop().split()
        found = embedded.status(data_dir)  # though both processes that could have begot it ended
        version = (data_dir / "PG_VERSION").read_text().strip()
        assert found == embedded.ServerStatus(True, int(pid), url, version, data_dir.resolve())
        assert ask(url, "SELECT 1") == "1"
    finally:
        embedded.stop_running(data_dir)


def test_the_development_server_is_found_again_until_it_is_stopped(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTLINE_DATA_DIR", str(home / "data"))
    assert not embedded.status().running
    assert not embedded.stop_running()
    url = embedded.ensure_running()
    try:
        pid = embedded.status().pid
        assert embedded.ensure_running() == url
        assert embedded.status().pid == pid
    finally:
        assert embedded.stop_running()
    assert not embedded.status().running
    assert embedded.status().url is None
    assert not embedded.stop_running()


# --- users --------------------------------------------------------------------------------------


@needs_root
def test_root_gets_a_server_that_runs_as_nobody(server: embedded.Server) -> None:
    server.start()
    assert Path(f"/proc/{server.pid}").stat().st_uid == pwd.getpwnam("nobody").pw_uid
    assert ask(server.url, "SELECT 1") == "1"


@needs_root
def test_an_ordinary_user_gets_a_server_that_runs_as_that_user(home: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    # The user is changed after the imports: the interpreter itself may be closed to `nobody`.
    program = """
        import os, pathlib, sys
        from faultline import embedded
        data_dir, binaries = map(pathlib.Path, sys.argv[1:3])
        os.setgroups([])
        os.setgid(int(sys.argv[4]))
        os.setuid(int(sys.argv[3]))
        server = embedded.Server(data_dir, binaries=binaries)
        server.start()
        print(server.url, pathlib.Path(f"/proc/{server.pid}").stat().st_uid, flush=True)
        sys.stdin.readline()
        server.stop()
    """
    binaries = embedded._runnable_by(nobody, embedded.find_binaries())
    arguments = (str(binaries), str(nobody.pw_uid), str(nobody.pw_gid))
    with python(program, str(home / "data"), *arguments) as user:
        assert user.stdout is not None
        url, uid = user.stdout.readline().split()
        assert int(uid) == nobody.pw_uid
        assert ask(url, "SELECT 1") == "1"
        user.communicate("stop\n", timeout=30)
    assert user.returncode == 0
    assert not embedded.Server(home / "data").running


@needs_root
def test_root_can_use_binaries_that_are_closed_to_everyone_else(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_SHARED_CACHE", home / "cache")
    binaries = embedded.find_binaries()
    install, package = binaries.parent, binaries.parent.parent
    closed = home / "closed"
    closed.mkdir(mode=0o700)
    private = closed / package.name / install.name
    shutil.copytree(install, private, symlinks=True)
    if (libraries := package.with_name(f"{package.name}.libs")).is_dir():
        shutil.copytree(libraries, closed / libraries.name)

    nobody = pwd.getpwnam("nobody")
    with ThreadPoolExecutor(2) as pool:  # at once, as two processes would
        copies = set(pool.map(lambda _: embedded._runnable_by(nobody, private / "bin"), range(2)))
    with embedded.temporary_server(binaries=private / "bin") as server:
        assert ask(server.url, "SELECT 1") == "1"
        program = embedded._command_line(server.pid or 0)
    (copy,) = copies
    assert program.startswith(f"{copy}/postgres ")
    assert len(list((home / "cache").iterdir())) == 1


@needs_root
def test_root_is_told_when_the_data_would_lie_where_the_server_cannot_go(home: Path) -> None:
    (home / "closed").mkdir(mode=0o700)
    with pytest.raises(EmbeddedServerError, match=r"nobody cannot enter .*FAULTLINE_DATA_DIR"):
        embedded.Server(home / "closed" / "data").start()


# --- binaries -----------------------------------------------------------------------------------


def test_without_binaries_the_error_names_the_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAULTLINE_PG_BIN", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(embedded, "_SYSTEM_PATTERNS", ())
    with pytest.raises(EmbeddedServerError) as failure:
        embedded.find_binaries()
    assert "pip install 'faultline[embedded]'" in str(failure.value)
    assert "DATABASE_URL" in str(failure.value)
    assert embedded.all_binaries() == {}


def test_binaries_named_by_the_environment_win_and_a_wrong_name_is_an_error(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest = embedded.all_binaries()[min(embedded.all_binaries())]
    monkeypatch.setenv("FAULTLINE_PG_BIN", str(oldest))
    assert embedded.find_binaries() == oldest
    monkeypatch.setenv("FAULTLINE_PG_BIN", str(home))
    with pytest.raises(EmbeddedServerError, match=r"FAULTLINE_PG_BIN is .* does not hold postgres"):
        embedded.find_binaries()


def test_a_major_that_is_not_installed_is_an_error_that_lists_those_that_are() -> None:
    with pytest.raises(EmbeddedServerError, match=r"PostgreSQL 9 is needed.*found: \d+"):
        embedded.find_binaries("9")
