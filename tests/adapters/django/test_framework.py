"""Django's own tests of task backends, on Faultline's.

Django ships them with its source: they are written for the two backends that Django has, so their texts get
ours in the roles of those. A backend that stores tasks takes the role of the dummy, and one that runs each
task at once by a worker that of the immediate one. The package django-tasks, for older versions of Django,
ships no tests: Django's get its names.
"""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

import pytest

from tests.adapters import versions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

# What these tests demand is what the role's own backend cannot do, or does inside of this process.
EXCEPTIONS = {
    "test_cannot_get_result": "results can be read",
    "test_cannot_refresh_result": "results can be read again",
    "test_cannot_pass_run_after": "tasks can be deferred",
    "test_refresh_result": "changes the dummy's list in memory",
    "test_refresh_result_async": "changes the dummy's list in memory",
    "test_doesnt_wait_until_transaction_commit_by_default": "a task exists if the block commits",
    "test_throws_keyboard_interrupt": "a worker runs the function, not the caller",
}
REPLACED = (
    (r"django\.tasks\.backends\.(dummy|immediate)", "tests.adapters.django.framework.backends"),
    # The tasks are in a database.
    (r"\bSimpleTestCase\b", "TransactionTestCase"),
    (r"TransactionTestCase, TransactionTestCase", "TransactionTestCase"),
    (r"    available_apps = \[\]\n", ""),
)


# What the package django-tasks calls otherwise.
OF_THE_PACKAGE = (
    (r"\bdjango\.tasks\b", "django_tasks"),
    (r"\b(InvalidTask|InvalidTaskBackend)\b", r"\1Error"),
    (r"Backend does not support async Tasks", "Backend does not support async tasks"),
)
PYTHONS = ("3.13", "3.12", "3.14")  # those of Django 6, whose source has the tests


def adapted(text: str, *, for_package: bool) -> str:
    for pattern, replacement in (*REPLACED, *(OF_THE_PACKAGE if for_package else ())):
        text = re.sub(pattern, replacement, text)
    names = "|".join(EXCEPTIONS)
    return re.sub(rf"(    (?:async )?def )({names})\(self", r"\1not_\2(self", text)


@pytest.mark.parametrize(
    ("installed", "tests_of"),
    [
        (("django==6.0.*",), "django==6.0.*"),
        (("django==6.1.*",), "django==6.1.*"),
        (("django==5.2.*", "django-tasks"), "django==6.0.*"),
    ],
    ids=["6.0", "6.1", "django-tasks"],
)
def test_djangos_own_tests_of_backends_pass(
    tmp_path: Path, new_database: object, installed: tuple[str, ...], tests_of: str
) -> None:
    python = versions.interpreter(*PYTHONS)
    own = versions.environment(tmp_path / "environment", python, *installed, "setuptools")
    versions.pip(
        own,
        *("download", "--no-deps", "--no-binary", "django", "--no-build-isolation"),
        *("--dest", str(tmp_path), tests_of),
    )
    [packed] = tmp_path.glob("django-*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / packed.name.removesuffix(".tar.gz") / "tests" / "tasks"
    suite = tmp_path / "suite" / "tasks"
    suite.mkdir(parents=True)
    for path in source.glob("*.py"):
        text = adapted(path.read_text(), for_package="django-tasks" in installed)
        (suite / path.name).write_text(text)
    with new_database() as url:  # type: ignore[operator]
        log = versions.run(
            own,
            *("-m", "django", "test", "tasks", "--noinput", "-v", "2"),
            cwd=suite.parent,
            DJANGO_SETTINGS_MODULE="tests.adapters.django.framework.settings",
            PYTHONPATH=f"{suite.parent}:{versions.ROOT}",
            SHOP_URL=url,
        )
    ran = re.search(r"Ran (\d+) tests", log)
    assert ran is not None
    assert int(ran[1]) >= 65, log
    assert "OK" in log
