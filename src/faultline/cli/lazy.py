"""Commands that are imported when they are called: a worker does not pay for the tables of `why`."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import click


def import_uncollected(module: str) -> ModuleType:
    """Import a module without garbage collection, and exclude it from later collections.

    Modules live as long as the process. Collecting while they are imported, and once more when the process
    ends, took more than a quarter of the CPU time that a worker needs to start and to stop.
    """
    if module in sys.modules or not gc.isenabled():
        return importlib.import_module(module)
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        gc.freeze()
        gc.enable()


class LazyGroup(click.Group):
    """Knows where each of its commands lives: {name: "module" or "module:attribute"}."""

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._modules:
            return None
        module, _, attribute = self._modules[cmd_name].partition(":")
        command: click.Command = getattr(import_uncollected(module), attribute or cmd_name)
        return command
