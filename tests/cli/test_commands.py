"""Each command has a module of its name, and help in whole sentences."""

from __future__ import annotations

import importlib
import re

import click
import pytest
from click.testing import CliRunner

from faultline.cli import main as main_module
from faultline.cli.main import COMMANDS, cli
from faultline.errors import DatabaseUnavailable

from .every_command import EVERY_COMMAND, Words

LINE = 80


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_defined_in_the_module_of_its_name(name: str) -> None:
    assert COMMANDS[name] == f"faultline.cli.{name}"
    command = getattr(importlib.import_module(COMMANDS[name]), name)
    assert isinstance(command, click.Command)
    assert command.name == name
    if command.callback is not None:
        assert re.match(rf"faultline\.cli\.{name}(\.|$)", command.callback.__module__)


GROUPS = [
    (),
    *(words for words, each in EVERY_COMMAND.items() if isinstance(each, click.Group)),
]


@pytest.mark.parametrize("words", GROUPS, ids=lambda words: " ".join(("faultline", *words)))
def test_every_summary_is_a_whole_sentence_that_fits_80_columns(words: Words) -> None:
    shown = CliRunner().invoke(cli, [*words, "--help"], terminal_width=LINE, env={"COLUMNS": "80"})
    commands = shown.output.partition("Commands:")[2].splitlines()[1:]
    assert commands
    for line in commands:
        assert len(line) <= LINE
        assert re.fullmatch(r"  [a-z-]+ +[A-Z].*[^.][.]", line), line


@pytest.mark.parametrize("words", EVERY_COMMAND, ids=" ".join)
def test_each_command_and_option_is_described_in_whole_sentences(words: Words) -> None:
    command = EVERY_COMMAND[words]
    assert command.help
    first = command.help.split("\n\n")[0].strip()
    assert first[0].isupper()
    assert first.endswith((".", ":"))
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.help, f"{option.opts[-1]} has no help"
            assert option.help[0].isupper(), option.opts[-1]
            assert re.search(r"[.)\]]$", option.help), option.opts[-1]


def test_an_error_while_an_interrupt_is_handled_counts_as_the_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver asks the server to cancel an interrupted query, which can fail."""

    def interrupted(**options: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise DatabaseUnavailable("the cancel request got no answer")  # noqa: B904

    monkeypatch.setattr(main_module, "cli", interrupted)
    monkeypatch.setattr("sys.argv", ["faultline", "bench"])
    with pytest.raises(SystemExit) as end:
        main_module.main()
    assert end.value.code == 130
    assert capsys.readouterr().err == "aborted\n"
