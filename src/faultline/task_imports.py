"""Imports the modules that define an application's tasks, when they are needed."""

from __future__ import annotations

import importlib
import os
import pkgutil
import threading
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from faultline.errors import InvalidInput

# Importing `__main__` would run a program, and a worker needs no tests.
_SKIPPED = frozenset({"__main__", "conftest", "tests"})
_PACKAGE = f"{Path(__file__).parent}{os.sep}"


class TaskImports:
    """Module names of an application, imported by `load` and not before.

    The modules usually import the application. If its constructor imported them, the import would be
    circular.
    """

    def __init__(self, modules: Iterable[str] = ()) -> None:
        self._modules = _checked("imports", modules)
        self._packages: list[str] = []
        self._lock = threading.RLock()

    def __bool__(self) -> bool:
        return bool(self._modules or self._packages)

    def add_packages(self, names: Iterable[str]) -> None:
        self._packages += _checked("autodiscover", names)

    def load(self) -> None:
        """Import everything that was not imported yet."""
        with self._lock:
            while self._modules:
                import_module(self._modules[0])
                del self._modules[0]
            while self._packages:
                for name in _modules_of(self._packages[0]):
                    import_module(name)
                del self._packages[0]


class UnknownModule(InvalidInput):
    """A module that was named does not exist, or its package does not."""


def import_module(name: str, *, what: str = "") -> ModuleType:
    """Import a module; an error names the module and the line that failed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise UnknownModule(
                f"{what}there is no module {error.name!r}",
                hint="run the command in your project's folder, or install your project",
            ) from None
        raise _import_failed(name, error, what) from error
    except Exception as error:
        raise _import_failed(name, error, what) from error


def _import_failed(name: str, error: Exception, what: str) -> InvalidInput:
    text, where = str(error), ""
    frames = traceback.extract_tb(error.__traceback__)
    # A refused task is raised in this package, and its definition is the line to correct.
    own = [frame for frame in frames if not frame.filename.startswith(("<frozen ", _PACKAGE))]
    if isinstance(error, SyntaxError):
        text, where = error.msg, f" ({error.filename}, line {error.lineno})"
    elif own:
        where = f" ({own[-1].filename}, line {own[-1].lineno})"
    return InvalidInput(
        f"{what}importing {name} failed: {type(error).__name__}: {text}{where}",
        hint=f"python -c 'import {name}' shows the whole traceback",
    )


def _modules_of(package: str) -> Iterator[str]:
    """The names of a package and of everything in it; each package is imported first."""
    yield package
    found = import_module(package)
    for entry in pkgutil.iter_modules(getattr(found, "__path__", ())):
        if entry.name in _SKIPPED or entry.name.startswith("test_"):
            continue
        name = f"{package}.{entry.name}"
        if entry.ispkg:
            yield from _modules_of(name)
        else:
            yield name


def _checked(what: str, names: Iterable[str]) -> list[str]:
    given = list(names) if not isinstance(names, str) else [names]
    for name in given:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise InvalidInput(
                f"{what}: {name!r} is not the name of a module", hint='write it as "shop.mail"'
            )
    return given
