"""What clients are told of an error of the database: all of it at home, an error id where others listen.

An inspector that other machines reach has no login. What PostgreSQL says about accounts, hosts, ports and
databases is then written to the log alone, under the id that the answer has.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass

from faultline import errors
from faultline.events import Event, emit
from faultline.redaction import without_passwords

SAY_AGAIN_SECONDS = 60.0
_MOST_REMEMBERED = 100
_WORDS: dict[type[errors.FaultlineError], str] = {
    errors.DatabaseUnavailable: "the database cannot be reached",
    errors.SchemaMismatch: "the database is not ready for this inspector",
    errors.DatabaseRefused: "the database refused to be read",
}
_OTHER = "the inspector failed"
# Errors about what the client asked for: they name nothing else.
_HARMLESS = (errors.UnknownJob, errors.InvalidInput)


@dataclass(frozen=True, slots=True)
class Told:
    message: str
    hint: str | None


class Discretion:
    def __init__(self, *, is_discreet: bool) -> None:
        self._is_discreet = is_discreet
        self._said: OrderedDict[tuple[str, str], tuple[str, float]] = OrderedDict()

    def told(self, error: errors.FaultlineError) -> Told:
        """What a client may read of this error."""
        if not self._is_discreet or isinstance(error, _HARMLESS):
            return Told(error.message, error.hint)
        words = next((_WORDS[kind] for kind in type(error).__mro__ if kind in _WORDS), _OTHER)
        return Told(words, f"its operator finds the reason in its log: error {self._logged(error)}")

    def _logged(self, error: errors.FaultlineError) -> str:
        """The id of the error in the log, where it is written once a minute for as long as it recurs."""
        text = without_passwords(" ".join(str(error).split()))
        error_id, said_at = self._said.get(
            (error.code, text), (secrets.token_hex(4), float("-inf"))
        )
        now = time.monotonic()
        if now - said_at >= SAY_AGAIN_SECONDS:
            emit(
                Event.DEGRADED, purpose="inspector", code=error.code, error=text, error_id=error_id
            )
            said_at = now
        self._said[error.code, text] = (error_id, said_at)
        self._said.move_to_end((error.code, text))
        if len(self._said) > _MOST_REMEMBERED:
            self._said.popitem(last=False)
        return error_id
