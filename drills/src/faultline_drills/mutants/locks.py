"""Verbs without row lock: the row can change between check and write."""

from __future__ import annotations

from faultline_drills.mutants.mutant import EXPLORER, OPERATING, RECOVERY, sql_mutant

LOCK_MUTANTS = (
    sql_mutant(
        "commit_without_lock",
        "the job can change between the fence check and the ledger entry",
        EXPLORER,
        (
            "SELECT * INTO job FROM faultline.jobs WHERE id = NEW.job_id FOR UPDATE;",
            "SELECT * INTO job FROM faultline.jobs WHERE id = NEW.job_id;",
        ),
    ),
    sql_mutant(
        "commit_many_without_lock",
        "a batch whose leases all hold is entered before its rows are locked",
        EXPLORER,
        ("          FOR UPDATE OF j SKIP LOCKED) AS h;", "          ) AS h;"),
    ),
    sql_mutant(
        "commit_many_judges_without_lock",
        "jobs of a batch are judged before their rows are locked",
        EXPLORER,
        (
            "                             ORDER BY j.id FOR UPDATE SKIP LOCKED);\n        SELECT",
            "                             ORDER BY j.id);\n        SELECT",
        ),
    ),
    sql_mutant(
        "fail_and_release_without_lock",
        "the job can change between the check and the failure or release",
        EXPLORER,
        (
            "SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = lock_own.job_id FOR UPDATE;",
            "SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = lock_own.job_id;",
        ),
    ),
    sql_mutant(
        "cancel_and_retry_without_lock",
        "an operator cancels or retries a job during its commit",
        EXPLORER,
        (
            "SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = lock_job.job_id FOR UPDATE;",
            "SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = lock_job.job_id;",
        ),
        path=OPERATING,
    ),
    sql_mutant(
        "assert_fence_without_lock",
        "the job can be taken over between the check and the commit of a fenced step",
        EXPLORER,
        (
            "WHERE j.id = assert_fence.job_id FOR KEY SHARE;",
            "WHERE j.id = assert_fence.job_id;",
        ),
    ),
    sql_mutant(
        "heartbeat_without_lock",
        "a renewal waits for a locked row",
        EXPLORER,
        (
            "WHERE j.id = ANY (job_ids) ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED),",
            "WHERE j.id = ANY (job_ids) ORDER BY j.id),",
        ),
    ),
    sql_mutant(
        "reconcile_expired_without_lock",
        "the reconciler requeues jobs that have changed since it read them",
        EXPLORER,
        (
            "ORDER BY j.created_at, j.id LIMIT max_jobs FOR UPDATE SKIP LOCKED);",
            "ORDER BY j.created_at, j.id LIMIT max_jobs);",
        ),
        path=RECOVERY,
    ),
    sql_mutant(
        "reconcile_lost_without_lock",
        "the same for the jobs of dead workers",
        EXPLORER,
        (
            "ORDER BY j.created_at LIMIT max_jobs - cardinality(expired) FOR UPDATE SKIP LOCKED);",
            "ORDER BY j.created_at LIMIT max_jobs - cardinality(expired));",
        ),
        path=RECOVERY,
    ),
)
