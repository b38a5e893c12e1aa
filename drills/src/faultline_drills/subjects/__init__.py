"""The subjects of a drill: Faultline, and the control, which has no fence."""

from __future__ import annotations

from enum import StrEnum
from importlib import resources

from faultline.postgres.migrate import migrate
from faultline.postgres.sessions import connect


class Subject(StrEnum):
    FAULTLINE = "faultline"
    NAIVE = "naive"


def install(subject: Subject, url: str) -> None:
    """Prepare a scratch database for the subject."""
    migrate(url)
    if subject is Subject.NAIVE:
        weaken(url)


def weaken(url: str) -> None:
    """Remove the fence, also after a migration has put it back. Idempotent."""
    sql = resources.files("faultline_drills.subjects").joinpath("naive.sql").read_text()
    with connect(url) as conn, conn.transaction():
        conn.execute(sql)
