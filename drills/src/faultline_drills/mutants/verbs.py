"""Bugs in the verbs: claim, renew, release, fail, defer, cancel, retry."""

from __future__ import annotations

from faultline_drills.mutants.mutant import (
    CLAIMING,
    ENQUEUE,
    EXPLORER,
    MIGRATION,
    MISMATCHED,
    OPERATING,
    PROGRESS,
    RECOVERY,
    SNOOZE,
    Edit,
    Mutant,
    drill,
    sql_mutant,
)

CLAIM_MUTANTS = (
    sql_mutant(
        "token_not_raised",
        "a claim does not raise the token",
        drill("stale_takeover"),
        (
            "fencing_token = greatest(j.fencing_token, epoch) + 1,",
            "fencing_token = greatest(j.fencing_token, 1),",
        ),
        blocks_the_drill=True,  # the guards refuse every such claim
    ),
    sql_mutant(
        "attempt_not_counted_at_claim",
        "a job that kills its worker never uses up its attempts",
        EXPLORER,
        ("attempts = j.attempts + 1, fencing_token", "attempts = j.attempts, fencing_token"),
    ),
    sql_mutant(
        "claims_wait_for_locks",
        "the claim lacks SKIP LOCKED",
        EXPLORER,
        (
            "ORDER BY w.next_run_at, w.id LIMIT wanted FOR UPDATE SKIP LOCKED",
            "ORDER BY w.next_run_at, w.id LIMIT wanted FOR UPDATE",
        ),
    ),
    sql_mutant(
        "claim_without_lock",
        "two claims read the same job before either locks it",
        EXPLORER,
        (
            "ORDER BY w.next_run_at, w.id LIMIT wanted FOR UPDATE SKIP LOCKED",
            "ORDER BY w.next_run_at, w.id LIMIT wanted",
        ),
    ),
    Mutant(
        "idempotency_key_not_unique",
        "the idempotency key is looked up before the insert and has no unique index",
        drill("duplicate_submission"),
        (
            Edit(
                MIGRATION,
                "CREATE UNIQUE INDEX jobs_idempotency_key",
                "CREATE INDEX jobs_idempotency_key",
            ),
            Edit(
                ENQUEUE,
                "        ORDER BY given.key, given.ordinal\n"
                "        ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;",
                "        WHERE NOT EXISTS ("
                "SELECT FROM faultline.jobs AS j WHERE j.idempotency_key = given.key)\n"
                "        ORDER BY given.key, given.ordinal;",
            ),
        ),
    ),
    sql_mutant(
        "conflicting_key_ignored",
        "another payload under the same key counts as the same job",
        drill("duplicate_submission"),
        (
            "    ELSIF FOUND THEN\n        RAISE EXCEPTION 'idempotency",
            "    ELSIF false THEN\n        RAISE EXCEPTION 'idempotency",
        ),
        path=ENQUEUE,
    ),
)

VERB_MUTANTS = (
    sql_mutant(
        "reconcile_ignores_expiry",
        "the reconciler requeues jobs whose lease has not expired",
        MISMATCHED,
        (
            "j.state = 'running' AND j.lease_expires_at <= statement_timestamp()",
            "j.state = 'running'",
        ),
        path=RECOVERY,
    ),
    sql_mutant(
        "retry_without_state_guard",
        "a running job can be retried",
        MISMATCHED,
        (
            "    ELSIF job.state = 'failed' THEN\n",
            "    ELSIF job.state IN ('failed', 'running') THEN\n",
        ),
        path=OPERATING,
    ),
    sql_mutant(
        "cancel_without_state_guard",
        "a finished job can be cancelled",
        MISMATCHED,
        (
            "IF job.state NOT IN ('queued', 'running') THEN\n        PERFORM",
            "IF false THEN\n        PERFORM",
        ),
        path=OPERATING,
    ),
    sql_mutant(
        "heartbeat_unfenced",
        "a stale worker renews the lease of the worker that took over",
        MISMATCHED,
        (
            "          AND faultline.is_holder(j, mine.token, mine.lease_id)\n        RETURNING",
            "          AND j.state = 'running'\n        RETURNING",
        ),
    ),
    sql_mutant(
        "release_without_token",
        "a stale worker releases a job that another worker runs",
        EXPLORER,
        (
            "lock_own(release.job_id, release.fencing_token, release.lease_id);",
            "lock_job(release.job_id);",
        ),
    ),
    sql_mutant(
        "snooze_without_token",
        "a stale worker snoozes a job that another worker runs",
        EXPLORER,
        (
            "lock_own(snooze.job_id, snooze.fencing_token, snooze.lease_id);",
            "lock_job(snooze.job_id);",
        ),
        path=SNOOZE,
    ),
    sql_mutant(
        "snooze_uses_an_attempt",
        "a job that is snoozed in its last attempt gets one attempt too many",
        EXPLORER,
        ("attempts = j.attempts - 1,", "attempts = j.attempts,"),
        path=SNOOZE,
    ),
    sql_mutant(
        "progress_unfenced",
        "a stale worker reports progress for a job that another worker runs",
        MISMATCHED,
        (
            "WHERE faultline.fence_violation(j, mine.token, mine.lease_id) IS NULL",
            "WHERE j.state = 'running'",
        ),
        path=PROGRESS,
    ),
    sql_mutant(
        "release_after_outage_without_token",
        "after an outage a stale worker releases a job that another worker runs",
        MISMATCHED,
        (
            "lock_own(\n"
            "        release_after_outage.job_id, release_after_outage.fencing_token,"
            " release_after_outage.lease_id);",
            "lock_job(release_after_outage.job_id);",
        ),
        path=RECOVERY,
    ),
    sql_mutant(
        "defer_unfenced",
        "a stale worker defers a job that another worker runs",
        MISMATCHED,
        (
            "AND faultline.is_holder(j, mine.token, mine.lease_id)),",
            "AND j.state = 'running'),",
        ),
        path=CLAIMING,
    ),
    sql_mutant(
        "fail_without_token",
        "a stale failure report requeues a job that another worker runs",
        EXPLORER,
        (
            "faultline.lock_own(fail.job_id, fail.fencing_token, fail.lease_id);",
            "faultline.lock_job(fail.job_id);",
        ),
    ),
)
