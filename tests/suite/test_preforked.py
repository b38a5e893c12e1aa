"""A process that is started by a fork behaves like one that is started by exec."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.preforked import PROGRAM, Template, forking

APP = """
import os, sys

print(os.getcwd(), os.environ["SHOP"], os.getsid(0) == os.getpid(), os.getppid(), *sys.argv[1:3])
print("closed", file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture
def by_fork(template_process: Template) -> Iterator[None]:
    with forking(template_process):
        yield


def start(folder: Path, **variables: str) -> subprocess.Popen[str]:
    (folder / "shop.py").write_text(APP)
    return subprocess.Popen(
        [*PROGRAM, "--app", "shop:app", "worker"],
        cwd=folder,
        env={**os.environ, "SHOP": "open", **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def is_fork(process: subprocess.Popen[str]) -> bool:
    return b"tests.preforked" in Path(f"/proc/{process.pid}/cmdline").read_bytes()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are forked on Linux")
def test_a_fork_has_the_environment_directory_streams_session_and_parent_it_was_given(
    by_fork: None, tmp_path: Path
) -> None:
    forked = start(tmp_path)
    was_fork = is_fork(forked)
    output, complaint = forked.communicate(timeout=60)
    if not was_fork:
        pytest.skip("this machine cannot fork into another process's children")
    assert output.split() == [str(tmp_path), "open", "True", str(os.getpid()), "--app", "shop:app"]
    assert complaint == "closed\n"
    assert forked.returncode == 3


def test_variables_that_the_interpreter_reads_at_its_start_cause_an_exec(
    by_fork: None, tmp_path: Path
) -> None:
    executed = start(tmp_path, PYTHONFAULTHANDLER="1")
    was_fork = is_fork(executed) if sys.platform.startswith("linux") else False
    executed.communicate(timeout=60)
    assert not was_fork
