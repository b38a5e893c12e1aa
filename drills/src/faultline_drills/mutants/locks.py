"""One verb each whose row lock is gone: it looks, and what it saw may change before it writes."""

from __future__ import annotations

from faultline_drills.mutants.mutant import EXPLORER, OPERATING, sql_mutant

LOCK_MUTANTS = (
    sql_mutant(
        "commit_without_lock",
        "the fence is checked and the job can change before the entry",
        EXPLORER,
        (
            "SELECT * INTO job FROM faultline.jobs WHERE id = NEW.job_id FOR UPDATE;",
            "SELECT * INTO job FROM faultline.jobs WHERE id = NEW.job_id;",
        ),
    ),
    sql_mutant(
        "commit_many_without_lock",
        "a batch is judged before its rows are held",
        EXPLORER,
        (
            "                             ORDER BY j.id FOR UPDATE SKIP LOCKED);\n    verdicts",
            "                             ORDER BY j.id);\n    verdicts",
        ),
    ),
    sql_mutant(
        "fail_and_release_without_lock",
        "giving up is checked and the job can change before it is written",
        EXPLORER,
        (
            "SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = lock_own.job_id FOR UPDATE;",
            "SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = lock_own.job_id;",
        ),
    ),
    sql_mutant(
        "cancel_and_retry_without_lock",
        "an operator's word overtakes a commit in flight",
        EXPLORER,
        (
            "SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = lock_job.job_id FOR UPDATE;",
            "SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = lock_job.job_id;",
        ),
        path=OPERATING,
    ),
    sql_mutant(
        "assert_fence_without_lock",
        "a fenced step is checked and the job can be taken over before it commits",
        EXPLORER,
        (
            "WHERE j.id = assert_fence.job_id FOR KEY SHARE;",
            "WHERE j.id = assert_fence.job_id;",
        ),
    ),
    sql_mutant(
        "heartbeat_without_lock",
        "a renewal waits behind whoever holds the row",
        EXPLORER,
        (
            "WHERE j.id = ANY (job_ids) ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED),",
            "WHERE j.id = ANY (job_ids) ORDER BY j.id),",
        ),
    ),
    sql_mutant(
        "reconcile_expired_without_lock",
        "the reconciler reads, and writes what has changed since",
        EXPLORER,
        (
            "ORDER BY j.lease_expires_at LIMIT max_jobs FOR UPDATE SKIP LOCKED);",
            "ORDER BY j.lease_expires_at LIMIT max_jobs);",
        ),
    ),
    sql_mutant(
        "reconcile_lost_without_lock",
        "the same for the jobs of dead workers",
        EXPLORER,
        (
            "ORDER BY j.lease_expires_at LIMIT max_jobs - cardinality(expired) FOR UPDATE SKIP LOCKED);",
            "ORDER BY j.lease_expires_at LIMIT max_jobs - cardinality(expired));",
        ),
    ),
)
