"""The commands of manage.py."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest

from faultline import InvalidSettings, JobState
from tests.adapters.django.conftest import Configure, Shop
from tests.conftest import NewDatabase
from tests.waiting import wait_until


def command(name: str, *words: str, **options: Any) -> str:
    from django.core.management import call_command

    out = StringIO()
    call_command(name, *words, stdout=out, **options)
    return out.getvalue()


ROOT = Path(__file__).parents[3]


def environment_of(shop: Shop, archive: str, faultline: dict[str, Any]) -> dict[str, str]:
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.adapters.django.settings",
        "SHOP_URL": shop.url,
        "ARCHIVE_URL": archive or shop.url,
        "SHOP_FAULTLINE": json.dumps(faultline),
    }


@contextlib.contextmanager
def worker_of(shop: Shop, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A worker that runs until the block ends, and must then drain."""
    command = [sys.executable, "-m", "django", "faultline_worker", *words]
    environment = environment_of(shop, "", {})
    with subprocess.Popen(command, cwd=ROOT, env=environment, text=True) as running:
        try:
            yield running
        finally:
            running.terminate()
            code = running.wait(60)
    assert code == 0


def require_running(process: subprocess.Popen[str]) -> None:
    assert process.poll() is None, f"it ended with {process.returncode}"


def manage(shop: Shop, *words: str, archive: str = "", **faultline: Any) -> str:
    """Run manage.py's command in a process of its own; returns what it logs."""
    ran = subprocess.run(
        [sys.executable, "-m", "django", *words],
        cwd=ROOT,
        env=environment_of(shop, archive, faultline),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


def test_the_worker_finds_the_tasks_of_installed_apps_and_runs_them(shop: Shop) -> None:
    enqueued = shop.tasks.pay.enqueue(invoice=42)
    log = manage(shop, "faultline_worker", "--max-jobs", "1", "-c", "2", "--log-format", "json")
    assert '"event":"worker_started"' in log.replace(" ", "")
    assert shop.app.get(enqueued.job_id).state is JobState.SUCCEEDED
    assert shop.pays(42)


@pytest.mark.slow
def test_the_worker_of_another_database(shop: Shop, archive_url: str) -> None:
    shop.tasks.archive.enqueue(invoice=7)
    words = ("faultline_worker", "--database", "archive", "--max-jobs=1")
    manage(shop, *words, archive=archive_url)
    with psycopg.connect(archive_url) as conn:
        assert conn.execute("SELECT invoice FROM shop_payment").fetchall() == [(7,)]
    shop.tasks.archive.app.close()


@pytest.mark.slow
def test_a_setting_has_defaults_for_the_workers_options(shop: Shop) -> None:
    shop.tasks.pay.options(queue="mail").enqueue(invoice=1)
    shop.tasks.pay.enqueue(invoice=2)
    worker = {"queues": ["mail"], "max_jobs": 1, "no_reconciler": True}
    manage(shop, "faultline_worker", WORKER=worker)
    assert shop.pays(1)
    manage(shop, "faultline_worker", "--queues=default", WORKER=worker)  # replaces its default
    assert shop.pays(1, 2)


@pytest.mark.slow
def test_two_processes_and_a_child_process_have_the_projects_modules(shop: Shop) -> None:
    """A handler with process=True runs in a process that imports its module alone."""
    jobs = [shop.tasks.count_in_child.enqueue().job_id for _ in range(2)]
    with worker_of(shop, "--processes=2") as running:
        wait_until(
            lambda: {shop.app.get(job).state for job in jobs} == {JobState.SUCCEEDED},
            check=lambda: require_running(running),
        )
    assert [shop.app.get(job).result for job in jobs] == [0, 0]


def test_an_unknown_default_is_refused(shop: Shop, configure: Configure) -> None:
    configure(WORKER={"concurency": 2})
    with pytest.raises(InvalidSettings, match=r"'concurency'.*did you mean concurrency"):
        command("faultline_worker", max_jobs=1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--concurrency", "many"], "'many' is not a valid integer"),
        (["--concurrency", "0"], r"\[invalid_settings\]"),
    ],
)
def test_a_wrong_option_is_an_error_of_the_command(shop: Shop, words: list[str], says: str) -> None:
    from django.core.management import CommandError

    with pytest.raises(CommandError, match=says):
        command("faultline_worker", *words)


def test_the_help_has_the_options_of_the_worker(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    from django.core.management import load_command_class

    parser = load_command_class("faultline.adapters.django", "faultline_worker").create_parser(
        "manage.py", "faultline_worker"
    )
    text = parser.format_help()
    for option in ("--queues", "--concurrency", "--max-jobs", "--metrics-port", "--database {def"):
        assert option in text
    for option in ("--app", "--database-url"):
        assert f"{option} " not in text


def test_migrate_installs_the_schema_once(shop: Shop, new_database: NewDatabase) -> None:
    from django.db import connections

    from faultline.testing.databases import name_of

    with new_database() as url:
        connections.settings["archive"]["NAME"] = name_of(url)
        first = command("faultline_migrate", database="archive")
        second = command("faultline_migrate", database="archive")
        connections["archive"].close()
        connections.settings["archive"]["NAME"] = ""
        with psycopg.connect(url) as conn:
            assert conn.execute("SELECT count(*) FROM faultline.jobs").fetchall() == [(0,)]
    assert "archive: the schema is at version" in first
    assert "nothing to do" not in first
    assert "nothing to do" in second


def test_djangos_migrate_installs_the_schema_unless_a_setting_says_no(
    shop: Shop, new_database: NewDatabase, configure: Configure
) -> None:
    from django.db import connections

    from faultline.testing.databases import name_of

    def schemas(url: str) -> int:
        with psycopg.connect(url) as conn:
            query = "SELECT FROM pg_namespace WHERE nspname = 'faultline'"
            return len(conn.execute(query).fetchall())

    with new_database() as url:
        connections.settings["archive"]["NAME"] = name_of(url)
        configure(MIGRATE=False)
        command("migrate", database="archive", verbosity=0)
        assert schemas(url) == 0
        configure(MIGRATE=True)
        command("migrate", database="archive", verbosity=0)
        assert schemas(url) == 1
        connections["archive"].close()
        connections.settings["archive"]["NAME"] = ""


def test_no_migration_of_django_is_missing(shop: Shop) -> None:
    assert "No changes detected" in command("makemigrations", check=True, dry_run=True)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"on_server": True}])
def test_the_demo_shows_that_a_stale_worker_is_refused(
    shop: Shop, capfd: pytest.CaptureFixture[str], options: dict[str, bool]
) -> None:
    command("faultline_demo", **options)
    assert "PostgreSQL refuses (token_mismatch" in capfd.readouterr().out


def test_the_demo_says_what_to_install(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.core.management import CommandError

    from faultline.cli import lazy_group

    monkeypatch.setattr(lazy_group, "entry_points", lambda **_: [])
    with pytest.raises(CommandError, match=r"pip install 'faultline-queue\[drills\]'"):
        command("faultline_demo")
