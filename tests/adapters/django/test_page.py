"""The code of docs/django.md, as a project that Django's own commands made."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.adapters.django.project import database
from tests.conftest import NewDatabase

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PAGE = (Path(__file__).parents[3] / "docs" / "django.md").read_text()
SERVER = """
DATABASES = {{"default": {default!r}, "archive": {archive!r}}}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
"""


@dataclass
class Project:
    folder: Path
    url: str
    archive: str

    def run(self, *words: str) -> str:
        ran = subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings"},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    def manage(self, *words: str) -> str:
        return self.run("manage.py", *words)

    def python(self, code: str) -> str:
        return self.manage("shell", "-c", code)


def write_code(folder: Path) -> None:
    """Add each block of the page to the file that its first line names."""
    import django

    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == PAGE.count("```python\n")
    for name, code in blocks:
        if django.VERSION < (6, 0):
            code = code.replace("from django.tasks ", "from django_tasks ")
        with (folder / name).open("a") as file:
            file.write(f"\n{code}")


@pytest.fixture
def project(tmp_path: Path, new_database: NewDatabase) -> Iterator[Project]:
    with new_database() as url, new_database() as archive:
        made = Project(tmp_path, url, archive)
        subprocess.run(
            [sys.executable, "-m", "django", "startproject", "config", "."],
            cwd=tmp_path,
            check=True,
        )
        made_by_django = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings"}
        subprocess.run(
            [sys.executable, "manage.py", "startapp", "shop"],
            cwd=tmp_path,
            env=made_by_django,
            check=True,
        )
        for name in ("models", "views", "tests"):
            (tmp_path / "shop" / f"{name}.py").write_text("")
        write_code(tmp_path)
        settings = SERVER.format(default=database(url), archive=database(archive))
        with (tmp_path / "config" / "settings.py").open("a") as file:
            file.write(settings + 'INSTALLED_APPS += ["shop"]\n')
        made.manage("makemigrations", "shop")
        made.manage("migrate")
        yield made


def rows(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as conn:
        return conn.execute(query).fetchall()


def test_the_code_of_the_page_runs(project: Project) -> None:
    project.python(
        "from django.test import RequestFactory; from shop.views import pay;"
        "assert pay(RequestFactory().post('/'), 42).status_code == 202;"
        "from shop.models import Payment; Payment.objects.create(invoice=7);"
        "from shop.tasks import refund; refund.enqueue(invoice=7)"
    )
    assert "worker_started" in project.manage(
        "faultline_worker", "--max-jobs=2", "--log-format=json"
    )
    assert rows(project.url, "SELECT invoice FROM shop_payment") == [(42,)]
    assert rows(project.url, "SELECT result FROM faultline.ledger ORDER BY committed_at")
    queues = ("queues", "--json")
    app = ("--app", "faultline.adapters.django.databases:default")
    assert '"default"' in project.run("-m", "faultline", *app, *queues)


def test_the_second_database_has_jobs_of_its_own(project: Project) -> None:
    project.manage("faultline_migrate", "--database=archive")
    project.manage("migrate", "--database=archive")
    project.python("from shop.tasks import archive; archive.enqueue(invoice=3)")
    project.manage("faultline_worker", "--database=archive", "--max-jobs=1")
    assert rows(project.archive, "SELECT invoice FROM shop_payment") == [(3,)]
    assert rows(project.url, "SELECT count(*) FROM faultline.jobs") == [(0,)]


def test_the_tests_of_the_page_pass_and_find_the_naive_form(project: Project) -> None:
    faults = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "shop/test_faults.py")
    assert "OK" in project.manage("test", "--noinput")
    assert "1 passed" in project.run(*faults)
    tasks = project.folder / "shop" / "tasks.py"
    naive = "from django.db import transaction\n" + tasks.read_text().replace(
        "with job.atomic():", "with transaction.atomic():"
    )
    tasks.write_text(naive)
    with pytest.raises(AssertionError, match="1 failed"):
        project.run(*faults)
