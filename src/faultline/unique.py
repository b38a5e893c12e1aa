"""`Unique`: which jobs of a task are equal, and what a second enqueue does."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal, get_args

from faultline.errors import InvalidInput
from faultline.suggestions import did_you_mean
from faultline.wording import with_article

While = Literal["queued", "unfinished"]
OnConflict = Literal["keep", "replace", "reschedule"]
LONGEST_WINDOW_SECONDS = 365 * 86_400  # faultline.check_unique has it too
SHORTEST_WINDOW_SECONDS = 0.001
_EXAMPLE = 'Unique(by=("customer_id",), while_="queued", on_conflict="replace")'


@dataclass(frozen=True, slots=True)
class Unique:
    """At most one job with equal arguments counts; an enqueue keeps or changes it.

    `by` names the arguments that are compared; without names all of them are. A job counts while it waits
    for its first claim (`queued`) or until it ends (`unfinished`), and at least for the time `for_`.
    `on_conflict` says what an enqueue does while another job counts: `keep` it, `replace` its payload, or
    `reschedule` it to the new time. A job that has been claimed is never changed, but kept.
    """

    by: Collection[str] | None = None
    while_: While = "unfinished"
    on_conflict: OnConflict = "keep"
    for_: float | timedelta | None = None
    # The defaults of arguments in `by`, as JSON values: a job that leaves one out is equal to one that
    # gives it.
    _defaults: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.by, str):
            raise InvalidInput(
                "unique: by is a tuple of arguments' names, not a string",
                hint=f"by=({self.by[:80]!r},)",
            )
        names = () if self.by is None else tuple(self.by)
        if not all(isinstance(name, str) for name in names):
            raise InvalidInput("unique: by has a name that is not a string", hint=_EXAMPLE)
        object.__setattr__(self, "by", tuple(sorted(set(names))))
        _check_word("while_", self.while_, get_args(While))
        _check_word("on_conflict", self.on_conflict, get_args(OnConflict))
        object.__setattr__(self, "for_", _window_seconds(self.for_))

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments that are compared; none means all."""
        return tuple(self.by or ())

    def bound(
        self, task: str, allowed: Collection[str], defaults: Mapping[str, Any], *, takes_any: bool
    ) -> Unique:
        """The same for one task, whose arguments are `allowed`; refuses other names."""
        for name in self.names:
            if name not in allowed and not takes_any:
                known = ", ".join(sorted(allowed)) or "none"
                raise InvalidInput(
                    f"{task}: unique by {name!r}, which is not an argument of the task",
                    hint=did_you_mean(name, allowed) or f"its arguments are {known}",
                )
        return replace(self, _defaults=defaults)

    def described(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The member "unique" of a job for `faultline.enqueue_jobs`."""
        compared = self.names or self._defaults
        absent = {
            name: self._defaults[name]
            for name in compared
            if name not in payload and name in self._defaults
        }
        found: dict[str, Any] = {"while": self.while_, "on_conflict": self.on_conflict}
        if self.names:
            found["by"] = self.names
        if absent:
            found["defaults"] = absent
        if self.for_ is not None:
            found["for"] = self.for_
        return found


def check_unique(given: Any) -> Unique:
    if not isinstance(given, Unique):
        raise InvalidInput(
            f"unique must be a faultline.Unique, not {with_article(type(given).__name__)}",
            hint=f"unique=faultline.{_EXAMPLE}",
        )
    return given


def _check_word(name: str, given: Any, known: tuple[str, ...]) -> None:
    if isinstance(given, str) and given in known:
        return
    text = str(given)[:80]
    words = " or ".join(repr(word) for word in known)
    raise InvalidInput(
        f"unique: {name} must be {words}, not {text!r}",
        hint=did_you_mean(text, known) or _EXAMPLE,
    )


def _window_seconds(given: Any) -> float | None:
    if given is None:
        return None
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidInput(
            f"unique: for_ must be seconds or a timedelta, not {with_article(type(given).__name__)}",
            hint="for_=timedelta(hours=1)",
        )
    if not SHORTEST_WINDOW_SECONDS <= seconds <= LONGEST_WINDOW_SECONDS:  # NaN too
        raise InvalidInput(
            f"unique: for_ must be at least {SHORTEST_WINDOW_SECONDS} and at most"
            f" {LONGEST_WINDOW_SECONDS:,} seconds (a year), not {seconds:g}",
            hint="leave it out for a key without a window",
        )
    return float(seconds)
