"""A schemathesis hook for payloads that the schema allows and the library refuses.

PostgreSQL stores larger numbers than the library sends, and JSON can write an integer in several ways. A
schema cannot say "an integer of at most 64 bits" for the inside of a payload.
"""

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
