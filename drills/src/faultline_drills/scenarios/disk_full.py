"""The disk that holds the tables is full, and later has room again.

Nothing can be committed, no failure recorded and no lease reconciled, because each of these writes
a row (53100). Each must fail completely, and be repeated. When there is room again, every job must
succeed once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from faultline.embedded.process import chown_to_server_account
from faultline.postgres.sessions import connect
from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay, pay_by_hand

_DISK_MEGABYTES = 16
_MOUNT_SECONDS = 60
_BLOCK_BYTES = 4096


def _missing_requirement() -> str | None:
    if not sys.platform.startswith("linux"):
        return "needs Linux, to mount a small disk"
    if os.geteuid() != 0:
        return "needs root, to mount a small disk"
    if shutil.which("mount") is None:
        return "needs the program mount: apt-get install mount"
    with tempfile.TemporaryDirectory() as folder:  # a container may forbid it even to root
        tried = subprocess.run(
            ["mount", "-t", "tmpfs", "faultline-drill", folder],  # noqa: S607 - wherever it is
            capture_output=True,
            check=False,
        )
        if tried.returncode == 0:
            _run("umount", "--lazy", folder)
    return None if tried.returncode == 0 else "needs permission to mount a small disk"


@scenario(
    shows=("disk_fulls", "outages", "commits"),
    server_settings={"fsync": "off"},  # no crash here, and moving tables is faster
    missing_requirement=_missing_requirement,
)
def disk_full(drill: DrillContext) -> None:
    disk = _mount(drill)
    _move_tables(drill, disk)
    workers = [drill.started_worker() for _ in range(drill.settings.workers)]
    filler = disk / "filler"
    try:
        with connect(drill.url, application_name="blocker") as blocker, blocker.transaction():
            # Block all payments until the disk is full: a table with a page has room for more rows.
            blocker.execute("LOCK TABLE drill.effects IN SHARE MODE")
            _start_jobs(drill, workers)
            _fill(filler)
        drill.inject("disk_full", str(disk), megabytes=_DISK_MEGABYTES)
        _expect_no_commit(drill, workers)
    finally:
        filler.unlink(missing_ok=True)
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")
    drill.stop_workers(drill.workers)
    _move_tables_back(drill)


def _start_jobs(drill: DrillContext, workers: list[ObservedProcess]) -> None:
    jobs = set()
    for number in range(drill.settings.jobs):
        task = pay if number % 2 else pay_by_hand
        jobs.add(str(drill.submit(task, number=number, work_seconds=drill.settings.lease_seconds)))
    drill.wait_until(lambda: jobs <= _started_jobs(workers), "all jobs under way")


def _started_jobs(workers: list[ObservedProcess]) -> set[str]:
    return {
        found["job_id"] for worker in workers for found in worker.events_named("execution_started")
    }


def _expect_no_commit(drill: DrillContext, workers: list[ObservedProcess]) -> None:
    drill.wait_until(
        lambda: any(worker.events_named("database_unavailable") for worker in workers),
        "a refused write",
    )
    drill.wait_for_row(
        "SELECT FROM faultline.jobs WHERE state = 'running' AND lease_expires_at < now()",
        [],
        "an expired lease",
    )
    entered = drill.count("SELECT count(*) FROM faultline.ledger")
    written = drill.count("SELECT count(DISTINCT job_id) FROM drill.effects")
    drill.expect(entered == written == 0, "a commit succeeded on a full disk")


def _mount(drill: DrillContext) -> Path:
    disk = drill.server.data_dir.parent / "disk"
    disk.mkdir()
    options = f"size={_DISK_MEGABYTES}m,mode=0700"
    _run("mount", "-t", "tmpfs", "-o", options, "faultline-drill", str(disk))
    # Lazily, since the server has files open there if the drill ends early.
    drill.stack.callback(_run, "umount", "--lazy", str(disk))
    space = disk / "tables"
    space.mkdir(mode=0o700)
    chown_to_server_account(disk, space)
    return disk


def _run(program: str, *arguments: str) -> None:
    subprocess.run([program, *arguments], check=True, timeout=_MOUNT_SECONDS)


def _move_tables(drill: DrillContext, disk: Path) -> None:
    """Move all tables to the small disk; an empty one needs its first page there too."""
    drill.conn.execute(f"CREATE TABLESPACE small_disk LOCATION '{disk}/tables'".encode())
    drill.conn.execute("ALTER TABLE ALL IN TABLESPACE pg_default SET TABLESPACE small_disk")
    drill.conn.execute("ALTER INDEX ALL IN TABLESPACE pg_default SET TABLESPACE small_disk")


def _move_tables_back(drill: DrillContext) -> None:
    """So that the disk can be unmounted before the server stops."""
    drill.conn.execute("ALTER TABLE ALL IN TABLESPACE small_disk SET TABLESPACE pg_default")
    drill.conn.execute("ALTER INDEX ALL IN TABLESPACE small_disk SET TABLESPACE pg_default")
    drill.conn.execute("DROP TABLESPACE small_disk")


def _fill(filler: Path) -> None:
    """Write to the file until the disk has no block left."""
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for _ in range(_DISK_MEGABYTES * 2**20 // _BLOCK_BYTES + 1):
            file.write(bytes(_BLOCK_BYTES))
