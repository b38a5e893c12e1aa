"""The server without Faultline: durability settings, round trip, commit time."""

from __future__ import annotations

from dataclasses import dataclass

from faultline.postgres.sessions import Connection
from faultline_drills.bench.measurements import Times
from faultline_drills.bench.sampling import sample_times, timed

_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names")


@dataclass(frozen=True)
class ServerFacts:
    version: str
    settings: dict[str, str]

    @property
    def warnings(self) -> list[str]:
        """Settings with which the server can lose commits."""
        texts = {
            "fsync": "fsync is OFF: no commit waits for the disk, and a crash may corrupt everything",
            "full_page_writes": "full_page_writes is OFF: a crash may leave half-written pages",
            "synchronous_commit": "synchronous_commit is OFF: a crash may lose confirmed commits",
        }
        return [text for name, text in texts.items() if self.settings[name] == "off"]


def describe(conn: Connection) -> ServerFacts:
    """The settings of this account's sessions, workers included."""
    values = {
        name: str(conn.execute("SELECT current_setting(%s)", [name]).fetchall()[0][0])
        for name in _SETTINGS
    }
    return ServerFacts(str(conn.info.parameter_status("server_version")), values)


def measure_round_trip(conn: Connection, budget_seconds: float) -> Times:
    samples = sample_times(
        lambda: timed(lambda: conn.execute("SELECT 1").fetchall()), budget_seconds=budget_seconds
    )
    return Times("round_trip", "round trip (SELECT 1)", samples)


def measure_commits(conn: Connection, budget_seconds: float) -> tuple[Times, Times]:
    """Measure an INSERT in autocommit, with and without waiting for the disk."""

    def insert() -> float:
        return timed(lambda: conn.execute("INSERT INTO drill.bench_commits (n) VALUES (1)"))

    durable = sample_times(insert, budget_seconds=budget_seconds * 0.7)
    conn.execute("SET synchronous_commit = off")
    try:
        unflushed = sample_times(insert, budget_seconds=budget_seconds * 0.3)
    finally:
        conn.execute("RESET synchronous_commit")
    return (
        Times("commit", "one INSERT, committed", durable),
        Times("commit_unflushed", "the same, not waiting for the disk", unflushed),
    )
