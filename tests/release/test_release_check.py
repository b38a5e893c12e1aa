"""`make release-check` passes for this tree, and finds what must not be uploaded."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from release.building import Distribution, ReleaseProblem, run
from release.check import check
from release.content import problems_of

METADATA = """Metadata-Version: 2.4
Name: faultline-queue
Version: 1
Summary: a queue
Keywords: queue
License-Expression: Apache-2.0
Requires-Python: >=3.11
Classifier: Typing :: Typed
Description-Content-Type: text/markdown
"""


@pytest.fixture
def made(tmp_path: Path) -> Distribution:
    """A distribution whose wheel and sdist are nearly empty."""
    sdist = tmp_path / "faultline_queue-1.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("faultline_queue-1/pyproject.toml"), io.BytesIO())
        archive.addfile(tarfile.TarInfo("faultline_queue-1/.venv/bin/python"), io.BytesIO())
    wheel = tmp_path / "faultline_queue-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive_of_wheel:
        for name in ("faultline/tests/test_a.py", "faultline/nemesis/b.py", "helpers.py"):
            archive_of_wheel.writestr(name, "")
        archive_of_wheel.writestr("faultline_queue-1.dist-info/METADATA", METADATA)
    return Distribution("faultline-queue", sdist, wheel)


@pytest.mark.parametrize(
    "problem",
    [
        "the wheel has the test faultline/tests/test_a.py",
        "the wheel has fault injection: faultline/nemesis/b.py",
        "the wheel would install helpers.py at the top level",
        "the wheel lacks faultline/sql/schema.sql",
        "the wheel lacks faultline/inspector/web/index.html",
        "the wheel and the source differ in faultline/app.py",
        "the wheel lacks its licenses/LICENSE",
        "the addresses are []",
        "the sdist lacks LICENSE",
        "the sdist has .venv/bin/python",
    ],
)
def test_the_check_finds(made: Distribution, problem: str) -> None:
    assert f"faultline-queue: {problem}" in problems_of(made)


def test_a_step_that_fails_shows_its_output(tmp_path: Path) -> None:
    with pytest.raises(ReleaseProblem, match=r"exit code 3\nwhy"):
        run("sh", "-c", "echo why >&2; exit 3", cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_both_distributions_of_this_tree_may_be_uploaded(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(home)
    said = capsys.readouterr().out
    assert "ok  [embedded]: a job takes effect" in said
    assert "ok  [drills]: demo, drill and bench" in said
