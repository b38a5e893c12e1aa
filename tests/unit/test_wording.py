"""Texts in which passwords may occur."""

from __future__ import annotations

import pytest

from faultline.wording import without_passwords

CANARY = "c4n4ry-Sw0rdf1sh"


@pytest.mark.parametrize(
    "text",
    [
        f"cannot use postgresql://u:{CANARY}@host:5432/db, it says",
        f"'postgresql+psycopg://u:{CANARY}@host/db'",
        f"postgresql://u:x@{CANARY}@host/db",
        f"redis://:{CANARY}@cache:6379/0",
        f"host=h password={CANARY} port=5432",
        f"host=h password='{CANARY} \\' more' port=5432",
        f"connect(user='u', Password = {CANARY})",
        f"amqp://guest:{CANARY}/@queue/%2f",
    ],
)
def test_passwords_are_removed_from_errors_of_libraries(text: str) -> None:
    scrubbed = without_passwords(text)

    assert CANARY not in scrubbed
    assert "***" in scrubbed


@pytest.mark.parametrize("piece", ["a.", "a-", "x://a:", "password = ", "a:b@"])
def test_a_long_text_is_scrubbed_in_linear_time(piece: str) -> None:
    """In quadratic time, each of these would exceed the test's timeout."""
    without_passwords(piece * 100_000)


@pytest.mark.parametrize(
    "text", ["see https://host:8080/path and mail a@b.c", "time 12:30 @ noon", "password missing"]
)
def test_text_that_is_no_password_is_kept(text: str) -> None:
    assert without_passwords(text) == text
