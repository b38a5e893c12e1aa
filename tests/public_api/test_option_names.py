"""A mistyped option is refused with the closest name."""

from __future__ import annotations

from typing import Any

import pytest

from faultline import Faultline, Job
from faultline.errors import InvalidInput

app = Faultline("postgresql://127.0.0.1:1/never-asked")


@app.task(name="charge")
def charge(job: Job) -> None: ...


@pytest.mark.parametrize(
    ("call", "given", "message", "hint"),
    [
        (charge.options, "priorty", "options has no option 'priorty'", "did you mean priority?"),
        (app.task, "max_attemps", "task has no option 'max_attemps'", "did you mean max_attempts?"),
    ],
)
def test_a_mistyped_option_is_refused_with_the_closest(
    call: Any, given: str, message: str, hint: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        call(**{given: 3})
    assert (refused.value.message, refused.value.hint) == (message, hint)


def test_an_option_that_resembles_none_is_answered_with_all() -> None:
    mistyped: dict[str, Any] = {"xyzzy": 3}
    with pytest.raises(InvalidInput) as refused:
        charge.options(**mistyped)
    assert str(refused.value.hint).startswith("it has queue, priority, run_at")
