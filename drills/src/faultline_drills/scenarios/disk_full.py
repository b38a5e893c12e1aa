"""The disk that holds the tables is full, and later has room again.

Somebody else's files have taken the last byte. Nothing can be committed any more, a failure cannot be
recorded and a lease not be taken back, because each of those writes a row (53100). Every one of them
has to fail whole, and wait. Then room is made, and everything goes on where it was.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from faultline.embedded.account import chown_to_server_account
from faultline.postgres.sessions import connect
from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay, pay_by_hand

_DISK_MEGABYTES = 16
_MOUNT_SECONDS = 60
_BLOCK_BYTES = 4096


def _lacking() -> str | None:
    if not sys.platform.startswith("linux"):
        return "needs Linux, to mount a small disk"
    if os.geteuid() != 0:
        return "needs root, to mount a small disk"
    if shutil.which("mount") is None:
        return "needs the program mount"
    with tempfile.TemporaryDirectory() as folder:  # in a container even root may not
        tried = subprocess.run(
            ["mount", "-t", "tmpfs", "faultline-drill", folder],  # noqa: S607 - wherever it is
            capture_output=True,
            check=False,
        )
        if tried.returncode == 0:
            _run("umount", "--lazy", folder)
    return None if tried.returncode == 0 else "needs the right to mount a small disk"


@scenario(
    shows=("disk_fulls", "outages", "commits"),
    server_settings={"fsync": "off"},  # no crash in this story, and moving tables is quicker
    lacking=_lacking,
)
def disk_full(drill: DrillContext) -> None:
    disk = _mount(drill)
    _move_tables(drill, disk)
    workers = [drill.started_worker() for _ in range(drill.settings.workers)]
    ballast = disk / "ballast"
    try:
        with connect(drill.url, application_name="a gate") as gate, gate.transaction():
            # Nobody pays before the disk is full: a table that has a page has room on it for more.
            gate.execute("LOCK TABLE drill.effects IN SHARE MODE")
            _set_to_work(drill, workers)
            _fill(ballast)
        drill.inject("disk_full", str(disk), megabytes=_DISK_MEGABYTES)
        _see_nothing_done(drill, workers)
    finally:
        ballast.unlink(missing_ok=True)
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    drill.stop_workers(drill.workers)
    _move_tables_back(drill)


def _set_to_work(drill: DrillContext, workers: list[ObservedProcess]) -> None:
    jobs = set()
    for number in range(drill.settings.jobs):
        task = pay if number % 2 else pay_by_hand
        jobs.add(str(drill.submit(task, number=number, work_seconds=drill.settings.lease_seconds)))
    drill.wait_until(lambda: jobs <= _begun(workers), "all jobs under way")


def _begun(workers: list[ObservedProcess]) -> set[str]:
    return {
        said["job_id"] for worker in workers for said in worker.events_named("execution_started")
    }


def _see_nothing_done(drill: DrillContext, workers: list[ObservedProcess]) -> None:
    drill.wait_until(
        lambda: any(worker.events_named("database_unavailable") for worker in workers),
        "a refused write",
    )
    drill.wait_for_row(
        "SELECT FROM faultline.jobs WHERE state = 'running' AND lease_expires_at < now()",
        [],
        "a lease that nobody can take back",
    )
    entered = drill.count("SELECT count(*) FROM faultline.ledger")
    written = drill.count("SELECT count(DISTINCT job_id) FROM drill.effects")
    drill.expect(entered == written == 0, "something was committed on a disk that is full")


def _mount(drill: DrillContext) -> Path:
    disk = drill.server.data_dir.parent / "disk"
    disk.mkdir()
    options = f"size={_DISK_MEGABYTES}m,mode=0700"
    _run("mount", "-t", "tmpfs", "-o", options, "faultline-drill", str(disk))
    # Lazily: should the drill end early, the server still has files open there.
    drill.stack.callback(_run, "umount", "--lazy", str(disk))
    space = disk / "tables"
    space.mkdir(mode=0o700)
    chown_to_server_account(disk, space)
    return disk


def _run(program: str, *arguments: str) -> None:
    subprocess.run([program, *arguments], check=True, timeout=_MOUNT_SECONDS)


def _move_tables(drill: DrillContext, disk: Path) -> None:
    """All of them: those that are empty will need their first page when the disk is full."""
    drill.conn.execute(f"CREATE TABLESPACE small_disk LOCATION '{disk}/tables'".encode())
    drill.conn.execute("ALTER TABLE ALL IN TABLESPACE pg_default SET TABLESPACE small_disk")
    drill.conn.execute("ALTER INDEX ALL IN TABLESPACE pg_default SET TABLESPACE small_disk")


def _move_tables_back(drill: DrillContext) -> None:
    """So that the disk can be taken away before the server is."""
    drill.conn.execute("ALTER TABLE ALL IN TABLESPACE small_disk SET TABLESPACE pg_default")
    drill.conn.execute("ALTER INDEX ALL IN TABLESPACE small_disk SET TABLESPACE pg_default")
    drill.conn.execute("DROP TABLESPACE small_disk")


def _fill(ballast: Path) -> None:
    """To the last block."""
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for _ in range(_DISK_MEGABYTES * 2**20 // _BLOCK_BYTES + 1):
            file.write(bytes(_BLOCK_BYTES))
