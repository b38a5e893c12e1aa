"""The example project works, and the guide shows its exact code and output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from faultline.testing.databases import SERVER_VARIABLE

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "testing"
GUIDE = (ROOT / "docs" / "testing.md").read_text()
TIMEOUT_SECONDS = 280  # a run of pytest with dozens of databases


def test_the_guide_shows_the_code_of_the_example() -> None:
    shown = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", GUIDE, flags=re.DOTALL)
    assert {name for name, _ in shown} == {"shop.py", "conftest.py", "test_shop.py"}
    for name, code in shown:
        assert code in (EXAMPLE / name).read_text()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_example_passes_and_prints_what_the_guide_shows(server_url: str) -> None:
    unused = ("cacheprovider", "hypothesispytest", "schemathesis")
    options = [
        "-p",
        "pytest_faultline",
        *(word for name in unused for word in ("-p", f"no:{name}")),
    ]
    done = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-q", "-s", *options],
        cwd=EXAMPLE,
        env={**os.environ, SERVER_VARIABLE: server_url},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    (story,) = re.findall(r"```\n(shop\.pay_carelessly: .*?)```", GUIDE, flags=re.DOTALL)
    assert story in done.stdout
