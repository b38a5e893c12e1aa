"""Every command accepts the global options before and after its name."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from faultline.cli.context import Context
from faultline.cli.global_options import GlobalOption
from faultline.cli.main import cli
from faultline.postgres.url import VARIABLE

from .conftest import Connection, enqueue
from .every_command import EVERY_COMMAND, Words
from .test_program import program

NAMES = {"--app", "--database-url", "--log-format", "--verbose"}
APP = """
from faultline import Faultline

app = Faultline()

@app.task(name="shop.charge", queue="billing")
def charge(job, invoice: int) -> None: ...
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder with a module `shop_of_cli`, which is the working directory."""
    (tmp_path / "shop_of_cli.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAULTLINE_APP", raising=False)
    return tmp_path


@pytest.mark.parametrize("words", EVERY_COMMAND, ids=" ".join)
def test_every_command_accepts_the_global_options(words: Words) -> None:
    options = {name for param in EVERY_COMMAND[words].params for name in param.opts}
    assert options >= NAMES


@pytest.mark.parametrize("words", EVERY_COMMAND, ids=" ".join)
def test_the_help_of_every_command_names_the_variable_of_the_app(words: Words) -> None:
    assert "FAULTLINE_APP" in CliRunner().invoke(cli, [*words, "--help"]).output


def test_the_help_names_the_variable_and_the_file_that_set_the_app() -> None:
    shown = " ".join(CliRunner().invoke(cli, ["--help"]).output.split())
    assert (
        "Default: FAULTLINE_APP, or `app` in [tool.faultline] of the nearest pyproject.toml"
        in shown
    )


def values(*words: str) -> Context:
    """The context that a command line leads to; the command itself does not run."""
    seen: list[Context] = []

    @click.command()
    @click.pass_obj
    def probe(context: Context, as_json: bool) -> None:
        seen.append(context)

    command = cli.get_command(click.Context(cli), "verify")
    assert command is not None
    callback, command.callback = command.callback, probe.callback
    try:
        done = CliRunner().invoke(cli, [*words, *([] if "verify" in words else ["verify"])])
    finally:
        command.callback = callback
    assert done.exit_code == 0, done.output
    return seen[0]


@pytest.mark.parametrize("before", [True, False])
def test_an_option_has_the_same_effect_before_and_after_the_command(before: bool) -> None:
    options = ["--app", "a.b:c", "--database-url", "postgresql://h/d", "--log-format", "json", "-v"]
    context = values(*options, "verify") if before else values("verify", *options, "--json")
    assert (context.app_path, context.given_url) == ("a.b:c", "postgresql://h/d")
    assert (context.log_format, context.verbose) == ("json", True)


def test_an_option_after_the_command_overrides_one_before_it() -> None:
    assert values("--app", "first:app", "verify", "--app", "second:app").app_path == "second:app"


def test_a_url_after_the_command_is_used_although_the_environment_contradicts_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://one/db")
    monkeypatch.setenv("DATABASE_URL_FILE", "/two")
    assert values("verify", "--database-url", "postgresql://h/d").given_url == "postgresql://h/d"


def test_options_are_accepted_between_a_group_and_its_command(
    database_url: str, conn: Connection
) -> None:
    enqueue(conn)
    done = CliRunner().invoke(cli, ["jobs", "--database-url", database_url, "list", "--json"])
    assert done.exit_code == 0, done.output


def test_health_ignores_them_and_needs_no_context(tmp_path: Path) -> None:
    words = ["health", "worker", "--health-file", str(tmp_path / "no"), "--app", "x:y", "-v"]
    done = CliRunner().invoke(cli, words)
    assert "no process with this --health-file is running" in done.output


def test_the_worker_finds_its_app_after_the_command(shop: Path) -> None:
    done = program("worker", "--app", "shop_of_cli:missing", url="postgresql://127.0.0.1:1/never")
    assert "the module shop_of_cli has no 'missing'" in done.stderr
    assert "try: --app shop_of_cli:app" in done.stderr


def test_a_mistyped_app_is_answered_with_the_closest(shop: Path) -> None:
    done = program("worker", "--app", "shop_of_cli:ap", url="postgresql://127.0.0.1:1/never")
    assert "try: did you mean app?" in done.stderr


# ── [tool.faultline] in pyproject.toml ───────────────────────────────────────────────────────────


def configure(folder: Path, text: str) -> None:
    (folder / "pyproject.toml").write_text(text)


def test_pyproject_toml_sets_the_default_of_app(shop: Path, database_url: str) -> None:
    configure(shop, '[tool.faultline]\napp = "shop_of_cli:app"\n')
    done = program("enqueue", "shop.chrage", url=database_url)
    assert "did you mean shop.charge?" in done.stderr


def test_a_parent_folder_counts_and_its_modules_can_be_imported(
    shop: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(shop, '[tool.faultline]\napp = "shop_of_cli:app"\n')
    inner = shop / "services" / "mail"
    inner.mkdir(parents=True)
    (inner / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    monkeypatch.chdir(inner)
    done = program("enqueue", "shop.charge", '{"invoice": 1}', url=database_url)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("given", ["option", "variable"])
def test_an_option_or_a_variable_has_precedence_over_the_file(
    shop: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    configure(shop, '[tool.faultline]\napp = "other:app"\n')
    if given == "variable":
        monkeypatch.setenv("FAULTLINE_APP", "mine:app")
    assert values(*(["--app", "mine:app"] if given == "option" else [])).app_path == "mine:app"


def test_a_file_of_another_account_in_a_parent_folder_is_ignored(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(shop, '[tool.faultline]\napp = "planted:app"\n')
    (shop / "inner").mkdir()
    monkeypatch.chdir(shop / "inner")
    assert values().app_path == "planted:app"
    monkeypatch.setattr(os, "getuid", lambda: (shop / "pyproject.toml").stat().st_uid + 1)
    if (shop / "pyproject.toml").stat().st_uid == 0:
        os.chown(shop / "pyproject.toml", 1234, -1)
    assert values().app_path is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tool.faultline\n", "pyproject.toml is not valid TOML"),
        ("[tool]\nfaultline = 1\n", "tool.faultline is not a table"),
        ('[tool.faultline]\nap = "a:b"\n', "unknown key 'ap'"),
        ('[tool.faultline]\nap = "a:b"\n', "did you mean app?"),
        ("[tool.faultline]\napp = 7\n", "app in [tool.faultline] is not MODULE:NAME"),
        ('[tool.faultline]\napp = "shop.jobs"\n', "app in [tool.faultline] is not MODULE:NAME"),
    ],
)
def test_an_invalid_table_is_an_error_that_names_the_file(shop: Path, text: str, says: str) -> None:
    configure(shop, text)
    done = program("enqueue", "shop.charge", url="postgresql://127.0.0.1:1/never")
    assert done.returncode == 2
    assert "[invalid_settings]" in done.stderr
    assert f"{shop}/pyproject.toml" in done.stderr
    assert says in done.stderr


def test_without_an_app_a_broken_file_is_not_read(shop: Path, database_url: str) -> None:
    configure(shop, "[tool.faultline\n")
    assert program("queues", url=database_url).returncode == 0


def test_options_of_the_root_are_not_added_twice() -> None:
    for command in EVERY_COMMAND.values():
        added = [param.name for param in command.params if isinstance(param, GlobalOption)]
        assert len(added) == len(set(added))


def test_a_url_with_a_driver_is_exported_as_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application may pass it to SQLAlchemy."""
    monkeypatch.setenv(VARIABLE, "another")
    context = Context(given_url="postgresql+psycopg://h/d")
    context.export_database_url()
    assert os.environ[VARIABLE] == "postgresql+psycopg://h/d"
    assert context.given_url == "postgresql://h/d"
