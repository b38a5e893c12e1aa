"""A chart on disk: its values merged and checked, its templates rendered to objects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema

from tests.kubernetes.reading import read, read_all
from tests.kubernetes.renderer.functions import as_json, as_values
from tests.kubernetes.renderer.syntax import parse_template
from tests.kubernetes.renderer.template import RenderingFailed, Templates


class InvalidValues(Exception):
    """values.schema.json says no."""


class Chart:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.about = read((folder / "Chart.yaml").read_text())
        self.values = read((folder / "values.yaml").read_text())
        self.schema = json.loads((folder / "values.schema.json").read_text())
        self._templates = Templates()
        self._files = {}
        for path in sorted((folder / "templates").iterdir()):
            nodes = parse_template(path.read_text())
            self._templates.define_all(nodes)
            if not path.name.startswith("_"):
                self._files[path.name] = nodes

    def merged(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """As Helm does with `--values`; checked against the schema as Helm does, after the merge."""
        values = _merged(self.values, given)
        errors = sorted(
            jsonschema.Draft7Validator(self.schema).iter_errors(values), key=lambda e: list(e.path)
        )
        if errors:
            said = [
                f"{'.'.join(map(str, error.path)) or '(root)'}: {error.message}" for error in errors
            ]
            raise InvalidValues("\n".join(said))
        return values

    def texts(
        self, given: Mapping[str, Any], *, release: str = "faultline", namespace: str = "jobs"
    ) -> dict[str, str]:
        """Each template's text, NOTES.txt included."""
        dot = {
            "Values": as_values(self.merged(given)),
            "Chart": {
                "Name": self.about["name"],
                "Version": self.about["version"],
                "AppVersion": self.about["appVersion"],
            },
            "Release": {"Name": release, "Namespace": namespace, "Service": "Helm"},
            "Files": {"Get": self._file},
        }
        return {name: self._templates.render(nodes, dot) for name, nodes in self._files.items()}

    def objects(self, given: Mapping[str, Any], **release: str) -> list[dict[str, Any]]:
        texts = self.texts(given, **release)
        return [
            document
            for name, text in texts.items()
            if name.endswith(".yaml")
            for document in read_all(text)
        ]

    def _file(self, name: str) -> str:
        path = self._folder / name
        if not path.is_file():
            raise RenderingFailed(f"the chart has no file {name}")
        return path.read_text()


def _merged(usual: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(usual)
    for key, value in given.items():
        if value is None:
            values.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(values.get(key), Mapping):
            values[key] = _merged(values[key], value)
        else:
            values[key] = value
    return as_json(values)
