"""Builds the table of chart values in docs/kubernetes.md from values.yaml."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import yaml

HERE = Path(__file__).parent
VALUES = HERE / "helm" / "faultline" / "values.yaml"
DOCUMENT = HERE.parent / "docs" / "kubernetes.md"
BEGIN = "<!-- the values, written by `make k8s` -->"
END = "<!-- end of the values -->"


class Value(NamedTuple):
    path: str
    default: str
    says: str


def values(text: str) -> list[Value]:
    """Every value in the order of the file; a group without a comment is left out."""
    return _walk(yaml.compose(text), text.splitlines(), ())


def _walk(node: Any, lines: list[str], above: tuple[str, ...]) -> list[Value]:
    found = []
    for key, value in node.value:
        path = (*above, key.value)
        says = _comment_above(lines, key.start_mark.line)
        is_group = isinstance(value, yaml.MappingNode) and value.value and not value.flow_style
        if is_group and any(
            _comment_above(lines, inner.start_mark.line) for inner, _ in value.value
        ):
            if says:
                found.append(Value(".".join(path), "", says))
            found += _walk(value, lines, path)
        else:
            found.append(Value(".".join(path), _shown(value), says))
    return found


def _comment_above(lines: list[str], line: int) -> str:
    comment: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        comment.insert(0, lines[line].strip().lstrip("# "))
    return " ".join(comment)


def _shown(node: Any) -> str:
    value: Any = yaml.safe_load(yaml.serialize(node))
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def table(text: str) -> str:
    rows = ["| value | default | |", "|---|---|---|"]
    rows += [f"| `{value.path}` | {value.default} | {value.says} |" for value in values(text)]
    return "\n".join(rows)


def document() -> str:
    """docs/kubernetes.md with the current table."""
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(VALUES.read_text())}\n{END}{after}"
