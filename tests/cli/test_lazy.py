"""How the command line imports its commands."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from faultline.cli.lazy import import_uncollected

GARBAGE = "import gc\ncollecting = gc.isenabled()\nkept = [[] for _ in range(5000)]\n"


@pytest.fixture
def module_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_command_is_imported_without_garbage_collection_and_left_out_of_later_ones(
    module_path: Path,
) -> None:
    (module_path / "lazily_imported.py").write_text(GARBAGE)
    frozen = gc.get_freeze_count()
    try:
        module = import_uncollected("lazily_imported")
    finally:
        sys.modules.pop("lazily_imported", None)
    assert not module.collecting
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(module.kept)


def test_a_command_that_cannot_be_imported_leaves_garbage_collection_on(module_path: Path) -> None:
    (module_path / "broken_command.py").write_text("raise RuntimeError('broken')")
    with pytest.raises(RuntimeError, match="broken"):
        import_uncollected("broken_command")
    assert gc.isenabled()
