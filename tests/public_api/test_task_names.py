"""A task has the name under which a worker imports it, however its module is run."""

from __future__ import annotations

import os
import subprocess
import sys
import zipapp
from pathlib import Path

import pytest

MODULE = """
import faultline

app = faultline.Faultline({url!r})

@app.task
def charge(job: faultline.Job, invoice: int) -> int:
    return invoice

if __name__ == "__main__":
    print(charge.name, charge.enqueue(invoice=1).job_id)
"""

DECORATORS = """
import functools

def logged(handler):
    @functools.wraps(handler)
    def wrapper(*args, **kwargs):
        return handler(*args, **kwargs)
    return wrapper
"""


def run_python(folder: Path, *arguments: str, text: str = "", path: str = "") -> str:
    """The first word that the program prints, or the last line of its error."""
    ran = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        input=text,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.stdout.split()[0] if ran.returncode == 0 else ran.stderr.strip().splitlines()[-1]


def write(folder: Path, name: str, url: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(MODULE.format(url=url))


@pytest.mark.parametrize(
    ("file", "arguments", "name"),
    [
        ("shop.py", ["shop.py"], "shop.charge"),
        ("shop.py", ["-m", "shop"], "shop.charge"),
        ("shop/jobs.py", ["shop/jobs.py"], "shop.jobs.charge"),
        ("shop/jobs.py", ["-m", "shop.jobs"], "shop.jobs.charge"),
        ("shop/__main__.py", ["-m", "shop"], "shop.__main__.charge"),
        ("shop/__main__.py", ["shop"], "shop.__main__.charge"),
        ("shop/__main__.py", ["shop/__main__.py"], "shop.__main__.charge"),
        ("shop.py", ["-m", "cProfile", "shop.py"], "shop.charge"),
        ("shop.py", ["-m", "cProfile", "-m", "shop"], "shop.charge"),
        pytest.param(  # every line is traced
            "shop.py",
            ["-m", "trace", "--count", "--missing", "--coverdir", "c", "shop.py"],
            "shop.charge",
            marks=pytest.mark.slow,
        ),
        (
            "shop.py",
            ["-c", "import runpy; runpy.run_path('shop.py', None, '__main__')"],
            "shop.charge",
        ),
    ],
)
def test_a_script_and_a_module_have_the_name_that_a_worker_imports(
    tmp_path: Path, database_url: str, file: str, arguments: list[str], name: str
) -> None:
    write(tmp_path, file, database_url)
    assert run_python(tmp_path, *arguments) == name


def test_a_script_in_a_package_has_the_name_in_its_package(
    tmp_path: Path, database_url: str
) -> None:
    write(tmp_path, "shop/jobs.py", database_url)
    (tmp_path / "shop/__init__.py").touch()
    assert run_python(tmp_path / "shop", "jobs.py") == "shop.jobs.charge"


def test_a_script_below_a_folder_of_the_path_has_its_name_from_there(
    tmp_path: Path, database_url: str
) -> None:
    write(tmp_path, "src/shop/jobs.py", database_url)
    source = str(tmp_path / "src")
    assert run_python(tmp_path, "src/shop/jobs.py", path=source) == "shop.jobs.charge"


def test_a_script_elsewhere_has_the_name_of_its_file(tmp_path: Path, database_url: str) -> None:
    write(tmp_path, "there/jobs.py", database_url)
    (tmp_path / "here").mkdir()
    assert run_python(tmp_path / "here", "../there/jobs.py") == "jobs.charge"


PROGRAM = "the text of the program"
NOT_IMPORTABLE = [
    ["-c", PROGRAM],
    ["-"],
    ["my-script.py"],
    ["shop.pyz"],
    ["."],
    ["-m", "timeit", "-n1", "-r1", PROGRAM],
    ["-m", "cProfile", "my-script.py"],
]


@pytest.mark.parametrize("arguments", NOT_IMPORTABLE, ids=str)
def test_a_task_that_no_worker_can_import_is_not_enqueued(
    tmp_path: Path, database_url: str, arguments: list[str]
) -> None:
    program = MODULE.format(url=database_url)
    if "timeit" in arguments:  # there the name of the module is in no global variable
        program = program.replace('if __name__ == "__main__":', "if True:")
    arguments = [program if argument == PROGRAM else argument for argument in arguments]
    for name in ("my-script.py", "__main__.py", "archived/__main__.py"):
        write(tmp_path, name, database_url)
    zipapp.create_archive(tmp_path / "archived", tmp_path / "shop.pyz")
    error = run_python(tmp_path, *arguments, text=program)
    assert "cannot enqueue" in error
    assert "@app.task(name='charge')" in error


def test_a_name_makes_such_a_task_known_to_workers(tmp_path: Path, database_url: str) -> None:
    program = MODULE.format(url=database_url).replace("@app.task", '@app.task(name="charge")')
    assert run_python(tmp_path, "-c", program) == "charge"


def test_a_decorator_from_another_module_does_not_change_the_name(
    tmp_path: Path, database_url: str
) -> None:
    (tmp_path / "decorators.py").write_text(DECORATORS)
    program = MODULE.format(url=database_url).replace("@app.task", "@app.task\n@logged")
    (tmp_path / "shop.py").write_text(f"from decorators import logged\n{program}")
    assert run_python(tmp_path, "shop.py") == "shop.charge"
