"""Imports point one way, one module opens connections, and files stay small."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import faultline
import faultline_drills

PACKAGE = Path(faultline.__file__).parent
ROOT = PACKAGE.parent.parent
DRILLS = Path(faultline_drills.__file__).parent
SOURCES = sorted([*PACKAGE.rglob("*.py"), *DRILLS.rglob("*.py")])
VAGUE = {"utils", "util", "common", "helpers", "helper", "manager", "managers", "base", "misc"}
CONNECT = re.compile(r"(psycopg|Connection)\.connect\Z|ConnectionPool\Z")
# Drills play the part of a user, who opens connections of their own.
MAY_CONNECT = {
    "faultline/postgres/sessions.py",
    "faultline_drills/nemesis/faults.py",
    "faultline_drills/servers/pooler.py",
    "faultline_drills/race/payment_task.py",
    "faultline_drills/scenarios/connections_exhausted.py",
    "faultline_drills/workload/tasks.py",
}


def relative(path: Path) -> str:
    package = DRILLS if path.is_relative_to(DRILLS) else PACKAGE
    return path.relative_to(package.parent).as_posix()


def test_imports_point_one_way() -> None:
    executable = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    if executable is None or not (ROOT / "pyproject.toml").is_file():
        pytest.skip("import-linter, or the contracts in pyproject.toml, are not here")
    command = [executable, "--no-cache"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 broken" in ran.stdout


def test_connections_are_opened_in_one_place() -> None:
    found = {
        relative(path)
        for path in SOURCES
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and CONNECT.search(ast.unparse(call.func))
    }
    assert found == MAY_CONNECT


def test_a_file_is_short_enough_to_be_read() -> None:
    lengths = {relative(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert {name: lines for name, lines in lengths.items() if lines > 500} == {}
    adapters = {name: lines for name, lines in lengths.items() if "/adapters/" in name}
    assert adapters
    assert {name: lines for name, lines in adapters.items() if lines >= 300} == {}


def test_no_file_has_a_meaningless_name() -> None:
    parts = {part.removesuffix(".py") for path in SOURCES for part in relative(path).split("/")}
    assert parts & VAGUE == set()


def test_every_file_begins_with_what_it_is_for() -> None:
    silent = [relative(p) for p in SOURCES if not ast.get_docstring(ast.parse(p.read_text()))]
    assert silent == []


def test_modules_that_do_not_need_the_driver_do_not_import_it() -> None:
    pure = ["model", "config", "payload", "errors", "events"]
    for name in pure:
        tree = ast.parse((PACKAGE / f"{name}.py").read_text())
        imported = {
            alias.name.split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        } | {
            (node.module or "").split(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
        }
        assert imported.isdisjoint({"psycopg", "psycopg_pool"}), name


def test_a_worker_imports_no_library_that_it_does_not_need() -> None:
    """Every restart waits for what it imports."""
    program = "import sys, faultline.cli.main, faultline.cli.worker; print(*sys.modules, sep='\\n')"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in ran.stdout.split()}
    assert loaded & {"rich", "pygments", "structlog", "fastapi", "opentelemetry"} == set()


def test_no_two_classes_have_the_same_name() -> None:
    homes: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(relative(path))
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}
