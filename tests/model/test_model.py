"""The formal model holds, finds planted faults, and is fully documented."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "model"
DOCUMENT = ROOT / "docs" / "model.md"
FENCE = "#define COMMIT_VIOLATION(w) VIOLATION(w)"
RUN_TIMEOUT_SECONDS = 280  # ten seconds of CPU on an idle machine

MISSING = [
    name
    for name, programs in (("spin", ("spin",)), ("a C compiler", ("cc", "gcc", "clang")))
    if not any(map(shutil.which, programs))
]
needs_spin = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


def check(model: Path, *options: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200"}
    if path is not None:
        environment["PATH"] = path
    return subprocess.run(
        [sys.executable, str(model / "check.py"), *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_SECONDS,
        check=False,
    )


@pytest.mark.slow
@needs_spin
@pytest.mark.timeout(RUN_TIMEOUT_SECONDS + 20)
def test_the_protocol_keeps_its_promises_and_planted_faults_are_caught() -> None:
    done = check(MODEL, "--quick")

    assert done.returncode == 0, done.stdout + done.stderr
    counted = re.search(r"(\d+) of (\d+) searches as expected", done.stdout)
    assert counted is not None
    assert counted[1] == counted[2]
    for found in ("CURRENT_TOKEN", "ONE_EFFECT", "LATE_COMMIT_FENCED", "REFUSED_BY_LEASE_ALONE"):
        assert found in done.stdout


@pytest.mark.slow
@needs_spin
@pytest.mark.timeout(RUN_TIMEOUT_SECONDS + 20)
def test_the_check_fails_for_a_protocol_without_its_fence(tmp_path: Path) -> None:
    broken = shutil.copytree(MODEL, tmp_path / "model")
    part = broken / "database.pml"
    text = part.read_text()
    assert text.count(FENCE) == 1
    part.write_text(text.replace(FENCE, FENCE.replace(" VIOLATION(w)", " HOLDS")))

    done = check(broken, "--only", "NO_NONCE")

    assert done.returncode == 1, done.stdout + done.stderr
    assert "CURRENT_TOKEN" in done.stdout


def test_without_spin_the_check_says_what_to_install(tmp_path: Path) -> None:
    done = check(MODEL, "--quick", path=str(tmp_path))

    assert done.returncode == 2
    assert "spin" in done.stderr
    assert "apt-get install" in done.stderr


def test_the_document_lists_every_flag_promise_and_situation_of_the_model() -> None:
    model = "".join(part.read_text() for part in MODEL.glob("*.pml"))
    document = DOCUMENT.read_text()
    results = document[document.index("<!-- results -->") : document.index("<!-- /results -->")]

    flags = set(re.findall(r"^#ifn?def (\w+)", model, re.MULTILINE))
    own = set(re.findall(r"^#define (\w+)$", model, re.MULTILINE))  # defined by the model itself
    situations = set(re.findall(r"REACHED(?:_IF)?\((\w+)[,)]", model)) - {"situation"}
    promises = set(re.findall(r"PROMISE\((\w+),", model)) - {"promise"}
    assert {"NO_FENCE", "ASYNC_FAILOVER"} <= flags - own
    assert len(situations) > 20
    assert len(promises) > 10

    in_results = set(re.findall(r"\w+", results))
    assert not (flags - own) - in_results
    assert not situations - in_results
    assert not promises - in_results, "a promise without a search that breaks it"
