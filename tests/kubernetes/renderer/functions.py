"""The functions that the chart calls, as Sprig and Helm define them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from tests.kubernetes.reading import read


class RenderingFailed(Exception):
    """What Helm would stop at: `required`, `fail`, or a value of the wrong kind."""


def is_empty(value: object) -> bool:
    return value is None or value is False or value == 0 or value in ("", [], {})


def printed(value: object) -> str:
    """As Go prints it into the text. What is not there, a list or a map is a mistake of the template's."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _printed_float(value)
    raise RenderingFailed(f"{value!r} cannot be printed")


def _printed_float(value: float) -> str:
    """Numbers in values are floats; Go prints those of more than six digits with an exponent."""
    digits = repr(value)
    if value.is_integer() and abs(value) < 1e6:
        return str(int(value))
    if 1e-4 <= abs(value) < 1e6:
        return digits
    mantissa, _, exponent = f"{value:e}".partition("e")
    mantissa = repr(float(re.sub(r"0+$", "", mantissa))).removesuffix(".0")
    return f"{mantissa}e{exponent[0]}{int(exponent[1:]):02}"


def as_json(value: Any) -> Any:
    """Whole floats as whole numbers, which is how they are written to JSON and YAML."""
    if isinstance(value, dict):
        return {key: as_json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [as_json(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def as_values(value: Any) -> Any:
    """The other way: what was read from YAML, with its numbers as Helm has them."""
    if isinstance(value, dict):
        return {key: as_values(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [as_values(inner) for inner in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _quote(value: object) -> str:
    return json.dumps(printed(value), ensure_ascii=False)


def _to_yaml(value: object) -> str:
    return yaml.safe_dump(as_json(value), default_flow_style=False, width=10_000).rstrip("\n")


def _from_yaml(text: str) -> Any:
    return as_values(read(text) or {})


def _indent(spaces: int, text: str) -> str:
    pad = " " * spaces
    return pad + text.replace("\n", "\n" + pad)


def _printf(pattern: str, *values: object) -> str:
    verbs = re.findall(r"%.", pattern)
    if set(verbs) - {"%s", "%d"} or len(verbs) != len(values):
        raise RenderingFailed(f"printf {pattern!r} with {values!r}")
    for verb, value in zip(verbs, values, strict=True):
        if isinstance(value, bool) or not isinstance(value, str if verb == "%s" else int):
            raise RenderingFailed(f"printf: {verb} of {value!r}")
    return pattern % values


def _required(message: str, value: object) -> object:
    if value is None or value == "":
        raise RenderingFailed(message)
    return value


def _fail(message: str) -> str:
    raise RenderingFailed(message)


def _dict(*pairs: Any) -> dict[str, Any]:
    if len(pairs) % 2:
        raise RenderingFailed("dict wants pairs")
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def _set(into: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    into[key] = value
    return into


def _compared(left: object, right: object) -> bool:
    """Go refuses to compare different kinds; so do we."""
    if type(left) is not type(right):
        raise RenderingFailed(f"{left!r} and {right!r} cannot be compared")
    return left == right


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": lambda *numbers: sum(int(number) for number in numbers),
    "contains": lambda part, text: part in text,
    "default": lambda usual, value=None: usual if is_empty(value) else value,
    "dict": _dict,
    "eq": _compared,
    "fail": _fail,
    "fromYaml": _from_yaml,
    "get": lambda mapping, key: mapping.get(key, ""),
    "hasKey": lambda mapping, key: key in mapping,
    "join": lambda separator, texts: separator.join(texts),
    "list": lambda *values: list(values),
    "ne": lambda left, right: not _compared(left, right),
    "nindent": lambda spaces, text: "\n" + _indent(spaces, text),
    "not": is_empty,
    "printf": _printf,
    "quote": _quote,
    "replace": lambda old, new, text: text.replace(old, new),
    "required": _required,
    "set": _set,
    "ternary": lambda yes, no, condition: yes if condition else no,
    "toYaml": _to_yaml,
    "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
    "trunc": lambda length, text: text[:length],
}
