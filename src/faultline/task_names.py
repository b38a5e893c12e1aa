"""The default name of a task: the one under which a worker imports its handler."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from faultline.errors import InvalidInput
from faultline.wording import with_article

# The module that Python runs, and its name in processes that multiprocessing has started.
_MAIN_MODULES = ("__main__", "__mp_main__")


class TaskName(NamedTuple):
    name: str
    problem: str | None  # why no worker can import the handler under this name


def check_handler(handler: object) -> None:
    """Refuse everything but functions: a worker must find the handler again."""
    if isinstance(handler, str):
        raise InvalidInput(
            f"@app.task got the text {handler[:80]!r}, not a function",
            hint=f"@app.task(name={handler[:80]!r})",
        )
    if isinstance(handler, staticmethod | classmethod) or inspect.ismethod(handler):
        raise _method(getattr(handler, "__qualname__", "the handler"))
    if not inspect.isfunction(handler):
        raise InvalidInput(
            f"a task is a function, not {with_article(type(handler).__name__)}",
            hint="define it with def or async def, at the top of its module",
        )
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise InvalidInput(
            f"{handler.__qualname__} is a generator function: calling it would not run its body",
            hint="take out `yield`, and return the result; enqueue a job for each part of the work",
        )
    owner, _, _ = handler.__qualname__.rpartition(".")
    if owner and not owner.endswith("<locals>"):
        raise _method(handler.__qualname__)


def _method(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name} is a method of a class, and a worker has no object to call it on",
        hint="define the task as a function at the top of the module",
    )


def is_redefinition(former: Callable[..., Any], handler: Callable[..., Any]) -> bool:
    """Whether a module defines the same function again, as a notebook does.

    A notebook and a reload compile the function again. Two functions with one code object come from one
    `def` that ran twice, as in a function that makes tasks: they may differ in what they close over.
    """
    if (former.__module__, former.__qualname__) != (handler.__module__, handler.__qualname__):
        return False
    first, second = inspect.unwrap(former), inspect.unwrap(handler)
    code = getattr(first, "__code__", None)
    return first is second or code is None or code is not getattr(second, "__code__", None)


def default_name(handler: Callable[..., Any]) -> TaskName:
    """The name under which a worker finds the handler, also that of a script."""
    if handler.__name__ == "<lambda>":
        raise InvalidInput(
            "a lambda has no name, under which a worker could find it",
            hint="define the task with def, or give it a name: app.task(name=…)(lambda job: …)",
        )
    module_name, problem = handler.__module__, None
    if module_name in _MAIN_MODULES:
        found = _importable_name(inspect.unwrap(handler))
        if found is None:
            problem = "workers cannot import a console, a notebook, an archive, or a file that is no module"
        else:
            module_name = found
    return TaskName(f"{module_name}.{handler.__qualname__}".replace("<locals>.", ""), problem)


def _importable_name(handler: Callable[..., Any]) -> str | None:
    """The name under which a worker imports the module of a handler in `__main__`.

    The module is known by the globals of the handler: `python -m cProfile` and the like run a script beside
    their own `__main__`. A handler whose code comes from a string, as with timeit, is in no module.
    """
    module: Mapping[str, Any] = getattr(handler, "__globals__", {})
    code = getattr(handler, "__code__", None)
    if module.get("__name__") not in _MAIN_MODULES or code is None or code.co_filename[:1] == "<":
        return None
    spec = module.get("__spec__")
    if spec is not None and spec.name not in _MAIN_MODULES:  # python -m shop.jobs
        return str(spec.name)
    file = module.get("__file__")
    if not file or not Path(file).is_file():
        return None
    path = Path(file).resolve().with_suffix("")
    parts = path.relative_to(_root_of(path)).parts
    if not all(part.isidentifier() for part in parts) or parts[0] in _MAIN_MODULES:
        return None
    return ".".join(parts)


def _root_of(path: Path) -> Path:
    """The folder from which a worker imports this file.

    For a module of a package it is the package's folder. Otherwise it is the deepest of sys.path and the
    working directory, where `faultline worker` looks too. The script's own folder comes last: Python puts
    it on sys.path only for the script.
    """
    folder = path.parent
    if (folder / "__init__.py").exists():
        while (folder / "__init__.py").exists():
            folder = folder.parent
        return folder
    entries = [os.getcwd(), *sys.path[1:]]  # noqa: PTH109 - compared with entries of sys.path
    roots = [Path(entry).resolve() for entry in entries if entry]
    above = [root for root in roots if root in path.parents]
    return max(above, key=lambda root: len(root.parts), default=folder)
