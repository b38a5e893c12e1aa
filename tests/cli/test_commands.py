"""Each command has a module of its name, and help in whole sentences."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

import click
import pytest

from faultline.cli import main as main_module
from faultline.cli.main import COMMANDS, cli
from faultline.errors import DatabaseUnavailable

LINE = 80
Path = tuple[str, ...]


def commands() -> Iterator[tuple[Path, click.Command]]:
    """Every command and subcommand of this distribution, by the words that call it."""
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        yield (name,), command
        if isinstance(command, click.Group):
            yield from (((name, inner), each) for inner, each in command.commands.items())


ALL = dict(commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_defined_in_the_module_of_its_name(name: str) -> None:
    assert COMMANDS[name] == f"faultline.cli.{name}"
    command = getattr(importlib.import_module(COMMANDS[name]), name)
    assert isinstance(command, click.Command)
    assert command.name == name
    if command.callback is not None:
        assert re.match(rf"faultline\.cli\.{name}(\.|$)", command.callback.__module__)


@pytest.mark.parametrize("group", [(), *(path for path in ALL if len(path) == 1)])
def test_no_summary_of_a_command_is_cut_off_in_80_columns(group: Path) -> None:
    command = ALL[group] if group else cli
    if isinstance(command, click.Group):
        context = click.Context(command, info_name="faultline", max_content_width=LINE)
        context.terminal_width = LINE
        assert "..." not in command.get_help(context).partition("Commands:")[2]


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_each_command_and_option_is_described_in_whole_sentences(path: Path) -> None:
    command = ALL[path]
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
