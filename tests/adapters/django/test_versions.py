"""The adapter on each supported Django, each in its own environment.

The suite's own environment has one of them, which depends on its Python.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters import versions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

FOLDER = "tests/adapters/django"
FILES = [
    "atomic",
    "enqueue",
    "commands",
    "configuration",
    "connections",
    "testing",
    "backend",
    "admin",
    "zombies",
]


@pytest.mark.parametrize(
    ("django", "pythons"),
    [
        ("4.2", ("3.11", "3.12")),
        ("5.2", ("3.13", "3.12", "3.11")),
        ("6.0", ("3.13", "3.12", "3.14")),
        ("6.1", ("3.13", "3.12", "3.14")),
    ],
)
def test_the_adapter_works_with_django(
    tmp_path: Path, server_url: str, django: str, pythons: tuple[str, ...]
) -> None:
    python = versions.interpreter(*pythons)
    own = versions.environment(
        tmp_path / "environment", python, f"django=={django}.*", "django-tasks", "pytest-django"
    )
    assert versions.run(own, "-m", "django", "--version").startswith(f"{django}.")
    log = versions.run(
        own,
        "-m",
        "pytest",
        "-q",
        "-m",
        "not slow",
        *(f"{FOLDER}/test_{name}.py" for name in FILES),
        FAULTLINE_TEST_DATABASE_URL=server_url,
        PYTHONDONTWRITEBYTECODE="1",
    )
    assert " passed" in log
    assert " skipped" not in log
