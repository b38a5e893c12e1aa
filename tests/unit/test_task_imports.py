"""Importing the modules of tasks: when, which, and what an error says."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faultline import Faultline, InvalidInput

Write = Callable[..., None]
APP = "from faultline import Faultline\napp = Faultline('postgresql://nowhere')\n"
TASK = "from {package}.app import app\n@app.task(name='{name}')\ndef handler(job): ...\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes modules of the package `shop13`, which can be imported during the test."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(**sources: str) -> None:
        for name, source in sources.items():
            path = tmp_path / "shop13" / f"{name.replace('__in__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            (path.parent / "__init__.py").touch()
            path.write_text(source)

    yield make
    for name in [name for name in sys.modules if name.split(".")[0] == "shop13"]:
        del sys.modules[name]


def app_of(write: Write, construction: str, **sources: str) -> Faultline:
    write(app=f"from faultline import Faultline\n{construction}\n", **sources)
    found = importlib.import_module("shop13.app").app
    assert isinstance(found, Faultline)
    return found


def task(name: str) -> str:
    return TASK.format(package="shop13", name=name)


def test_modules_that_import_the_app_are_imported_later(write: Write) -> None:
    app = app_of(write, "app = Faultline(imports=['shop13.mail'])", mail=task("send"))
    assert not app.tasks
    app.import_tasks()
    app.import_tasks()
    assert set(app.tasks) == {"send"}


def test_autodiscover_imports_every_module_of_a_package(write: Write) -> None:
    app = app_of(
        write,
        "app = Faultline()\napp.autodiscover('shop13')",
        mail=task("send"),
        deep__in__billing=task("charge"),
        __main__="raise SystemExit('a program ran')",
        test_mail="raise AssertionError('a test was imported')",
        tests__in__helpers="raise AssertionError('a test was imported')",
    )
    app.import_tasks()
    assert set(app.tasks) == {"send", "charge"}


def test_autodiscover_takes_a_module_that_is_no_package(write: Write) -> None:
    app = app_of(write, "app = Faultline()\napp.autodiscover('shop13.mail')", mail=task("send"))
    app.import_tasks()
    assert set(app.tasks) == {"send"}


def test_a_missing_module_is_named(write: Write) -> None:
    app = app_of(write, "app = Faultline(imports=['shop13.mial'])")
    with pytest.raises(InvalidInput, match=r"there is no module 'shop13\.mial'"):
        app.import_tasks()


def test_an_error_in_a_module_names_the_module_and_the_line(write: Write) -> None:
    app = app_of(write, "app = Faultline(imports=['shop13.mail'])", mail="\n\n1 / 0\n")
    message = r"importing shop13\.mail failed: ZeroDivisionError: .*mail\.py, line 3"
    with pytest.raises(InvalidInput, match=message):
        app.import_tasks()


def test_a_refused_task_is_named_with_the_line_that_defines_it(write: Write) -> None:
    mail = "from shop13.app import app\n@app.task\ndef send(to: str): ...\n"
    app = app_of(write, "app = Faultline(imports=['shop13.mail'])", mail=mail)
    message = r"send must take the job as its first argument.*mail\.py, line [23]\)"
    with pytest.raises(InvalidInput, match=message):
        app.import_tasks()


def test_a_module_that_a_task_needs_and_that_is_missing_is_named(write: Write) -> None:
    app = app_of(write, "app = Faultline(imports=['shop13.mail'])", mail="import no_such_thing\n")
    with pytest.raises(InvalidInput, match=r"importing shop13\.mail failed: .*no_such_thing"):
        app.import_tasks()


def test_after_an_error_the_import_can_be_repeated(write: Write) -> None:
    app = app_of(write, "app = Faultline(imports=['shop13.mail'])", mail="1 / 0\n")
    with pytest.raises(InvalidInput):
        app.import_tasks()
    write(mail=task("send") + "# longer than before\n")
    app.import_tasks()
    assert set(app.tasks) == {"send"}


@pytest.mark.parametrize("name", ["", "shop mail", "shop/mail.py", ".mail", 7])
def test_what_is_no_module_name_is_refused_at_once(name: str) -> None:
    with pytest.raises(InvalidInput, match="is not the name of a module"):
        Faultline(imports=[name])
    with pytest.raises(InvalidInput, match="is not the name of a module"):
        Faultline().autodiscover(name)
