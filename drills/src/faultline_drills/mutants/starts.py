"""Bugs in which jobs start: expired ones, and those of low priority."""

from __future__ import annotations

from faultline_drills.mutants.mutant import CLAIMING, Edit, Mutant, drill, sql_mutant

_EXPIRED = drill("expired_jobs")

START_MUTANTS = (
    sql_mutant(
        "expired_job_starts",
        "a claim takes a job that expired before its first attempt",
        _EXPIRED,
        (
            "WHEN t.attempts = 0 AND t.expires_at <= statement_timestamp() THEN 'expired'",
            "WHEN false THEN 'expired'",
        ),
        path=CLAIMING,
    ),
    sql_mutant(
        "retried_job_expires",
        "a job that started before its expiry fails when it is to be retried later",
        _EXPIRED,
        (
            "WHEN t.attempts = 0 AND t.expires_at <= statement_timestamp() THEN 'expired'",
            "WHEN t.expires_at <= statement_timestamp() THEN 'expired'",
        ),
        path=CLAIMING,
    ),
    sql_mutant(
        "expired_job_of_an_unserved_queue_waits",
        "the reconciler does not find expired jobs that no claim meets",
        _EXPIRED,
        (
            "WHERE j.state = 'queued' AND j.expires_at <= statement_timestamp() AND j.attempts = 0",
            "WHERE j.state = 'queued' AND false",
        ),
        path=CLAIMING,
    ),
    Mutant(
        "low_priorities_starve",
        "every claim begins at the highest priority",
        drill("priorities"),
        (
            Edit(
                "workers/priority_rotation.py",
                "        return self._next if self._is_due else 0\n",
                "        return 0\n",
            ),
        ),
    ),
)
