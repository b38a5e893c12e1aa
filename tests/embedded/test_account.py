"""The account that the server runs as, and what it can reach."""

from __future__ import annotations

import os
import pwd
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from faultline import embedded
from faultline.embedded import process
from faultline.embedded.process import command_line
from faultline.errors import EmbeddedServerError

from .helpers import python, query_value

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def test_root_gets_a_server_that_runs_as_nobody(server: embedded.Server) -> None:
    server.start()
    assert Path(f"/proc/{server.pid}").stat().st_uid == pwd.getpwnam("nobody").pw_uid
    assert query_value(server.url, "SELECT 1") == "1"


@pytest.mark.slow
def test_an_ordinary_user_gets_a_server_that_runs_as_that_user(home: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    # The user is changed after the imports, because that account may not be able to read the interpreter.
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
    binaries = process.reachable_binaries(embedded.find_binaries())
    arguments = (str(binaries), str(nobody.pw_uid), str(nobody.pw_gid))
    with python(program, str(home / "data"), *arguments) as user:
        assert user.stdout is not None
        url, uid = user.stdout.readline().split()
        assert int(uid) == nobody.pw_uid
        assert query_value(url, "SELECT 1") == "1"
        user.communicate("stop\n", timeout=90)
    assert user.returncode == 0
    assert not embedded.Server(home / "data").running


@pytest.mark.slow
def test_root_can_use_binaries_that_only_root_can_read(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_SHARED_CACHE", home / "cache")
    binaries = embedded.find_binaries()
    install, package = binaries.parent, binaries.parent.parent
    closed = home / "closed"
    closed.mkdir(mode=0o700)
    private = closed / package.name / install.name
    shutil.copytree(install, private, symlinks=True)
    if (libraries := package.with_name(f"{package.name}.libs")).is_dir():
        shutil.copytree(libraries, closed / libraries.name)

    with ThreadPoolExecutor(2) as pool:  # at the same time, like two processes
        copies = set(pool.map(lambda _: process.reachable_binaries(private / "bin"), range(2)))
    with embedded.temporary_server(binaries=private / "bin") as server:
        assert query_value(server.url, "SELECT 1") == "1"
        program = command_line(server.pid or 0)
    (copy,) = copies
    assert program.startswith(f"{copy}/postgres ")
    assert len(list((home / "cache").iterdir())) == 1


def test_a_data_directory_that_the_server_cannot_enter_is_an_error(home: Path) -> None:
    (home / "closed").mkdir(mode=0o700)
    with pytest.raises(EmbeddedServerError, match=r"nobody cannot enter .*FAULTLINE_DATA_DIR"):
        embedded.Server(home / "closed" / "data").start()


@pytest.mark.slow
def test_a_temporary_server_of_root_avoids_a_private_temporary_directory(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "closed").mkdir(mode=0o700)
    monkeypatch.setattr("tempfile.tempdir", str(home / "closed"))
    with embedded.temporary_server() as server:
        assert query_value(server.url, "SELECT 1") == "1"
