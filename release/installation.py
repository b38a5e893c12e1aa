"""Installs the built wheels as a user would, and uses them from an empty folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from release.building import (
    Distribution,
    ReleaseProblem,
    clean_environment,
    install,
    make_environment,
    run,
)

SMOKE = """
import faultline

app = faultline.Faultline()


@app.task()
async def greet(job: faultline.Job, name: str) -> None:
    async with job.transaction() as tx:
        await tx.execute("create table if not exists greetings (name text)")
        await tx.execute("insert into greetings (name) values (%s)", [name])
"""
COUNT = """
import sys

import psycopg

with psycopg.connect(sys.argv[1]) as conn:
    print(conn.execute("select count(*) from greetings").fetchone()[0])
"""
NAMES = """
import sys

import faultline

for name in faultline.__all__:
    getattr(faultline, name)
print(faultline.__file__)
"""


@dataclass(frozen=True)
class Installation:
    """An environment with the built wheel, and an empty folder to use it in."""

    programs: Path
    folder: Path
    data_dir: Path

    def run(self, program: str, *arguments: str) -> str:
        environment = {
            **clean_environment(),
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "FAULTLINE_DATA_DIR": str(self.data_dir),
        }
        return run(self.programs / program, *arguments, cwd=self.folder, environment=environment)

    def refused(self, program: str, *arguments: str) -> str:
        """Run a command that must fail, and return what it says."""
        try:
            self.run(program, *arguments)
        except ReleaseProblem as problem:
            return str(problem)
        raise ReleaseProblem(f"{program} {' '.join(arguments)} did not fail")


def checks(
    distributions: list[Distribution], workspace: Path
) -> Iterator[tuple[str, Callable[[], None]]]:
    """The checks of the installed wheels, in order, each with its name."""
    queue, drills = distributions
    folder = workspace / "empty"
    folder.mkdir()
    installation = Installation(
        make_environment(workspace / "installed", [queue.wheel]), folder, workspace / "data"
    )
    yield "without extras: import, --version, --help", lambda: _plain(installation, queue)
    yield "without extras: what to install for more", lambda: _hints(installation)
    install(installation.programs, f"{queue.wheel}[embedded]")
    yield "[embedded]: a job takes effect", lambda: _smoke(installation)
    install(installation.programs, f"{queue.wheel}[api]")
    yield "[api]: the API's document", lambda: _api(installation)
    install(installation.programs, "--find-links", drills.wheel.parent, f"{queue.wheel}[drills]")
    yield "[drills]: demo, drill and bench", lambda: _drills(installation)


def _require(condition: bool, said: str) -> None:
    if not condition:
        raise ReleaseProblem(said)


def _plain(installation: Installation, queue: Distribution) -> None:
    version = queue.wheel.name.split("-")[1]
    said = installation.run("faultline", "--version")
    _require(said == f"faultline-queue {version} (faultline)\n", said)
    where = installation.run("python", "-c", NAMES)
    _require(str(installation.programs.parent) in where, f"imported from {where}")
    helped = installation.run("faultline", "--help")
    _require("worker" in helped and helped.count("Not installed:") == 3, helped)
    installation.run("python", "-m", "pip", "check")


def _hints(installation: Installation) -> None:
    for arguments, hint in (
        (["demo"], "pip install 'faultline-queue[drills]'"),
        (["api"], "faultline-queue[api]"),
    ):
        said = installation.refused("faultline", *arguments)
        _require(hint in said and "Traceback" not in said, said)


def _smoke(installation: Installation) -> None:
    (installation.folder / "greetings.py").write_text(SMOKE)
    where = installation.run(
        "python", "-c", "import faultline.embedded as e; print(e.find_binaries())"
    )
    _require(str(installation.programs.parent) in where, f"the server is {where}")
    try:
        installation.run("faultline", "db", "start")
        installation.run("faultline", "migrate")
        enqueue = "import greetings; greetings.greet.enqueue(name='world')"
        installation.run("python", "-c", enqueue)
        installation.run("faultline", "--app", "greetings:app", "worker", "--max-jobs", "1")
        url = installation.run("faultline", "db", "url").strip()
        count = installation.run("python", "-c", COUNT, url)
        _require(count == "1\n", f"{count} effects of one job")
        installation.run("faultline", "verify")
    finally:
        installation.run("faultline", "db", "stop")


def _api(installation: Installation) -> None:
    program = "from faultline.api.openapi import *; import faultline.api, fastapi, uvicorn"
    installation.run("python", "-c", program)
    installation.run("faultline", "api", "--help")


def _drills(installation: Installation) -> None:
    for command in ("demo", "drill", "bench"):
        installation.run("faultline", command, "--help")
    _require("poison" in installation.run("faultline", "drill", "list"), "no scenario is listed")
    installation.run("python", "-m", "pip", "check")
