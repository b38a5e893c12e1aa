"""DATABASE_URL and DATABASE_URL_FILE: at most one is set; mistakes fail at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from faultline import Faultline
from faultline.cli.context import Context
from faultline.errors import InvalidSettings
from faultline.postgres.url import environment_with, url_from_environment
from faultline.testing.application import using

URL = "postgresql://u:s3cret@host/db"


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.delenv("DATABASE_URL_FILE", raising=False)


@pytest.mark.parametrize("content", [URL, f"{URL}\n", f"\n \t{URL}\r\n\n"])
def test_white_space_around_the_url_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    (tmp_path / "url").write_text(content)
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "url"))

    assert url_from_environment() == URL
    assert Faultline().database_url == URL


def test_a_changed_secret_file_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like an orchestrator, the test points a symbolic link to another file."""
    for name in ("old", "new"):
        (tmp_path / name).write_text(f"postgresql://{name}/db")
    link = tmp_path / "url"
    link.symlink_to(tmp_path / "old")
    monkeypatch.setenv("DATABASE_URL_FILE", str(link))
    app = Faultline()
    assert app.database_url == app.database_url == "postgresql://old/db"

    link.unlink()
    link.symlink_to(tmp_path / "new")

    assert app.database_url == "postgresql://new/db"


def test_neither_variable_is_required() -> None:
    assert url_from_environment() is None


@pytest.mark.parametrize("empty", ["DATABASE_URL", "DATABASE_URL_FILE"])
def test_an_empty_variable_counts_as_none(monkeypatch: pytest.MonkeyPatch, empty: str) -> None:
    monkeypatch.setenv(empty, "")
    assert url_from_environment() is None


def test_setting_both_variables_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "url").write_text(URL)
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "url"))
    monkeypatch.setenv("DATABASE_URL", URL)

    with pytest.raises(InvalidSettings, match="both set") as refused:
        _ = Faultline().database_url
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: No such file"),
        (b"", "does not hold a database URL"),
        (b" \n", "does not hold a database URL"),
        (b"\xff\xfe s3cret", "does not hold a database URL"),
        (b"s3cret" * 20_000, "does not hold a database URL"),
        (b"s3cret\0", "does not hold a database URL"),
    ],
    ids=["missing", "empty", "blank", "not text", "endless", "with a null"],
)
def test_an_unusable_file_is_named_and_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, says: str
) -> None:
    path = tmp_path / "url"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("DATABASE_URL_FILE", str(path))

    with pytest.raises(InvalidSettings, match=says) as refused:
        url_from_environment()
    assert str(path) in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_given_url_is_passed_to_the_application_and_child_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "nowhere"))
    monkeypatch.setenv("DATABASE_URL", "another")  # restored after the test

    Context(app_path=None, given_url=URL, log_format="json", verbose=False).export_database_url()

    assert url_from_environment() == URL
    assert "DATABASE_URL_FILE" not in os.environ


def test_a_url_from_a_file_is_not_copied_into_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "url").write_text(URL)
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "url"))

    Context(app_path=None, given_url=URL, log_format="json", verbose=False).export_database_url()

    assert "DATABASE_URL" not in os.environ
    assert url_from_environment() == URL


def test_a_childs_environment_has_one_of_the_two_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "url"))

    environment = environment_with(URL)

    assert environment["DATABASE_URL"] == URL
    assert "DATABASE_URL_FILE" not in environment


def test_the_testing_fixture_restores_the_url_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "url").write_text("postgresql://own/db")
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "url"))
    app = Faultline()

    with using(app, URL):
        assert Faultline().database_url == URL

    assert app.database_url == "postgresql://own/db"
    assert "DATABASE_URL" not in os.environ
