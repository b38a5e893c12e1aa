"""Claims about the health file itself, and what a probe says when there is none."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from faultline.errors import InvalidSettings
from faultline.health import health_file as file
from faultline.health.writer import HealthFileWriter, write_first
from faultline.workers.supervisor import SupervisorHealth
from tests.health.conftest import Probe, probe
from tests.unit.health.test_probe import WELL, crew


@pytest.mark.parametrize("report", [WELL, crew("running", "drained")])
def test_a_written_report_is_read_back_and_leaves_no_draft(
    health_file: Path, report: object
) -> None:
    file.write(health_file, report)  # type: ignore[arg-type]
    assert file.read(health_file) == report
    assert list(health_file.parent.iterdir()) == [health_file]


def test_a_reader_never_sees_half_a_report(health_file: Path) -> None:
    """The file is replaced, not rewritten: an open reader still reads the old one."""
    file.write(health_file, WELL)
    with health_file.open() as old:
        file.write(health_file, WELL._replace(pid=8))
        assert os.fstat(old.fileno()).st_ino != health_file.stat().st_ino
    read = file.read(health_file)
    assert read is not None
    assert read.pid == 8


def test_a_draft_is_not_written_through_somebodys_link(health_file: Path) -> None:
    victim = health_file.with_name("victim")
    health_file.with_name(f".{health_file.name}.{os.getpid()}").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        file.write(health_file, WELL)
    assert not victim.exists()


def test_a_file_that_cannot_be_written_fails_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="cannot be written"):
        write_first(tmp_path / "no" / "such" / "folder", WELL)


def test_a_process_that_has_not_begun_reports_that_and_leaves_no_file(
    health_file: Path, worker_probe: Probe
) -> None:
    writer = HealthFileWriter(health_file, "worker")
    writer.start()
    assert worker_probe().code == 0
    assert worker_probe("--ready") == (1, f"worker {os.getpid()} is starting")
    writer.stop()
    assert worker_probe() == (
        1,
        f"there is no {health_file}: no process with this --health-file is running",
    )


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 99}', '{"format": 1}'])
def test_a_file_that_is_no_report_fails_the_probe(
    health_file: Path, worker_probe: Probe, text: str
) -> None:
    health_file.write_text(text)
    answer = worker_probe()
    assert answer.code == 1
    assert answer.line.startswith(f"{health_file} cannot be read: ")


def test_one_process_does_not_answer_for_another(health_file: Path) -> None:
    file.write(health_file, WELL)
    answer = probe("reconciler", "--health-file", str(health_file))
    assert answer == (1, f"{health_file} is the health file of a worker")


def test_a_probe_imports_almost_nothing(health_file: Path) -> None:
    """It runs every few seconds, beside the process that needs the machine."""
    heavy = {"psycopg", "asyncio", "structlog", "rich", "orjson", "http.client", "faultline.app"}
    program = (
        "import sys; from faultline.cli.main import main\n"
        f"sys.argv = ['faultline', 'health', 'worker', '--health-file', {str(health_file)!r}]\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code, sorted(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    message, code_and_modules = done.stdout.splitlines()
    assert message.startswith("there is no")
    code, _, modules = code_and_modules.partition(" ")
    assert code == "1"
    assert not heavy & set(ast.literal_eval(modules))


def test_a_writer_that_was_killed_while_it_wrote_leaves_no_draft_behind(health_file: Path) -> None:
    roster = SupervisorHealth(health_file)
    mine, neighbours = roster.file_of(0), roster.file_of(1)
    abandoned = mine.with_name(f".{mine.name}.4711")
    in_use = neighbours.with_name(f".{neighbours.name}.4712")
    for draft in (abandoned, in_use):
        draft.touch()
    roster.forget(0)
    assert not abandoned.exists()
    roster.close()
    assert list(health_file.parent.iterdir()) == [in_use]


def test_the_report_of_an_ended_process_does_not_count_for_its_successor(
    health_file: Path,
) -> None:
    roster = SupervisorHealth(health_file)
    file.write(roster.file_of(0), WELL)
    roster.forget(0)
    assert file.read(roster.file_of(0)) is None
