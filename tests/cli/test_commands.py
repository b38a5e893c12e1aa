"""Claims about the table of commands and their modules."""

from __future__ import annotations

import importlib
import re

import click
import pytest

from faultline.cli.main import COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_defined_in_the_module_of_its_name(name: str) -> None:
    assert COMMANDS[name] == f"faultline.cli.{name}"
    command = getattr(importlib.import_module(COMMANDS[name]), name)
    assert isinstance(command, click.Command)
    assert command.name == name
    assert command.callback is not None
    assert re.match(rf"faultline\.cli\.{name}(\.|$)", command.callback.__module__)
