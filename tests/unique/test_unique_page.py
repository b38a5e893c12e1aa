"""The example of docs/unique-jobs.md works as written."""

from __future__ import annotations

import re
import shlex
import types
from pathlib import Path

import pytest

from faultline import Faultline
from faultline.testing import run_until_idle
from tests.cli.conftest import invoke

PAGE = (Path(__file__).parents[2] / "docs" / "unique-jobs.md").read_text()


def test_the_example_of_the_page_works(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    [example] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    module = types.ModuleType("example_of_unique_jobs")
    exec(compile(example, "docs/unique-jobs.md", "exec"), vars(module))  # noqa: S102
    app: Faultline = module.app  # type: ignore[attr-defined]
    try:
        module.main()  # type: ignore[attr-defined]
        ended = run_until_idle(app)
        assert sorted(str(each.result) for each in ended) == ["None", "name"]
    finally:
        app.close()


def test_the_command_of_the_page_works(database_url: str) -> None:
    [command] = re.findall(r"^```\n(faultline enqueue .*?)\n```", PAGE, re.DOTALL | re.MULTILINE)
    _, *words = shlex.split(command)
    outcomes = []
    for _ in range(2):
        done = invoke(database_url, *words, "--json")
        assert (done.code, done.error) == (0, None)
        outcomes.append(done.json["outcome"])
    assert outcomes == ["queued", "replaced"]
