"""What schemathesis is told that a JSON schema cannot say: PostgreSQL keeps more numbers than our library
sends, and a number is written without a fraction in more ways than one, so a schema has no word for
"an integer of at most 64 bits" inside of a payload."""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.hook
def filter_body(context: Any, body: Any) -> bool:
    return all(-(2**63) <= number < 2**64 for number in _integers(body))


def _integers(value: Any) -> list[int]:
    match value:
        case bool():
            return []
        case int():
            return [value]
        case dict():
            return [number for item in value.values() for number in _integers(item)]
        case list():
            return [number for item in value for number in _integers(item)]
    return []
