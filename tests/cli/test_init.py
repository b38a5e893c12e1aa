"""`faultline init`: the project that it writes works as it is."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import psycopg
import pytest
import yaml

from faultline.cli.init import project_files, project_name
from tests.cli.conftest import invoke

FILES = ["README.md", "compose.yaml", "pyproject.toml", "tasks.py", "test_tasks.py"]
PROGRAMS = Path(sys.executable).parent
LIMIT_SECONDS = 280.0  # the machine may be busy

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty folder in which `init` has written a project."""
    done = invoke(None, "init", str(tmp_path / "shop"))
    assert done.code == 0, done.out
    return tmp_path / "shop"


def run(project: Path, program: str, *arguments: str, url: str = "") -> str:
    environment = {**os.environ, "DATABASE_URL": url, "FAULTLINE_TEST_DATABASE_URL": url}
    done = subprocess.run(
        [PROGRAMS / program, *arguments],
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_it_writes_the_files_and_says_what_comes_next(tmp_path: Path) -> None:
    done = invoke(None, "init", str(tmp_path / "shop"))
    assert sorted(path.name for path in (tmp_path / "shop").iterdir()) == FILES
    said = done.out.partition("next:\n")[2].splitlines()
    needed = "pip install 'faultline-queue[api,embedded,testing]'"
    commands = [f"cd {tmp_path / 'shop'}", needed, "python tasks.py", "faultline worker", "pytest"]
    assert [line.strip() for line in said] == commands
    assert needed in (tmp_path / "shop" / "README.md").read_text()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("mine")
    refusal = invoke(None, "init", str(tmp_path)).refused("invalid_input")
    assert "already has tasks.py; nothing was written" in refusal.message
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.py"]
    assert (tmp_path / "tasks.py").read_text() == "mine"


def test_its_job_takes_effect_once(project: Path, database_url: str) -> None:
    assert "payments: []" in run(project, "python", "tasks.py", url=database_url)
    run(project, "faultline", "worker", "--max-jobs", "1", url=database_url)
    assert "payments: [42]" in run(project, "python", "tasks.py", url=database_url)
    with psycopg.connect(database_url) as conn:
        jobs = conn.execute("select task, state from faultline.jobs").fetchall()
    assert jobs == [("shop.charge", "succeeded")]


def test_a_second_run_says_that_the_job_existed(project: Path, database_url: str) -> None:
    assert run(project, "python", "tasks.py", url=database_url).startswith("enqueued: ")
    assert run(project, "python", "tasks.py", url=database_url).startswith("enqueued before: ")


@pytest.mark.slow
def test_two_projects_on_one_server_do_not_take_each_others_jobs(
    project: Path, tmp_path: Path, database_url: str
) -> None:
    second = tmp_path / "my-shop"
    invoke(None, "init", str(second))
    for folder in (project, second):
        assert "payments: []" in run(folder, "python", "tasks.py", url=database_url)
    run(second, "faultline", "worker", "--max-jobs", "1", url=database_url)
    with psycopg.connect(database_url) as conn:
        jobs = conn.execute(
            "select task, queue, state from faultline.jobs order by task"
        ).fetchall()
    assert jobs == [
        ("my_shop.charge", "my_shop", "succeeded"),
        ("shop.charge", "shop", "queued"),
    ]
    assert "payments: [42]" in run(second, "python", "tasks.py", url=database_url)
    assert "payments: []" in run(project, "python", "tasks.py", url=database_url)


def test_the_next_command_quotes_a_folder_with_blanks(tmp_path: Path) -> None:
    done = invoke(None, "init", str(tmp_path / "my shop"))
    assert f"  cd '{tmp_path / 'my shop'}'\n" in done.out


def test_its_dependencies_run_the_dashboard_that_its_readme_names(project: Path) -> None:
    settings = tomllib.loads((project / "pyproject.toml").read_text())
    [needed] = settings["project"]["optional-dependencies"]["dev"]
    assert needed == "faultline-queue[api,embedded,testing]"
    assert "faultline inspector serve" in (project / "README.md").read_text()


@pytest.mark.slow
def test_its_tests_pass(project: Path, server_url: str) -> None:
    assert "2 passed" in run(project, "python", "-m", "pytest", "-q", url=server_url)


def test_its_code_is_clean(project: Path) -> None:
    run(
        project,
        "ruff",
        "check",
        "--isolated",
        "--select",
        "E,F,I,B,UP",
        "--line-length",
        "110",
        ".",
    )
    run(project, "ruff", "format", "--isolated", "--line-length", "110", "--check", ".")


@pytest.mark.slow
def test_its_types_are_right(project: Path) -> None:
    (project / "mypy.ini").write_text("[mypy]\n")
    run(project, "mypy", "tasks.py", "test_tasks.py")


def test_its_settings_name_the_folder(project: Path) -> None:
    settings = tomllib.loads((project / "pyproject.toml").read_text())
    assert settings["project"]["name"] == "shop"
    assert settings["tool"]["faultline"] == {"app": "tasks:app"}
    compose = yaml.safe_load((project / "compose.yaml").read_text())
    assert compose["services"]["postgres"]["environment"]["POSTGRES_DB"] == "shop"
    assert not [text for text in project_files("shop").values() if "{{" in text]


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        *(("shop", "shop"), ("My Shop.2", "my_shop_2"), ("2026", "jobs_2026"), ("…", "jobs")),
        ("a" * 39 + "-" + "b" * 200, "a" * 39),
    ],
)
def test_a_folder_gives_a_name_that_every_program_accepts(folder: str, name: str) -> None:
    assert project_name(Path("/projects") / folder) == name
