"""Bugs for the explorer to find: the protocol with one thing changed.

Each replaces text of protocol.sql, or of another SQL file, in a scratch database. If the text is no
longer there, applying the mutant fails: a mutant that changes nothing proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from faultline.postgres.sessions import connect

Change = tuple[str, str]


@dataclass(frozen=True)
class SqlMutant:
    name: str
    changes: Sequence[Change]
    programs: tuple[str, ...]  # any of them reveals it
    file: str = "protocol.sql"
    also: str = ""  # further SQL

    def apply(self, url: str) -> None:
        text = resources.files("faultline.sql").joinpath(self.file).read_text()
        for before, after in self.changes:
            assert before in text, f"{self.name}: {before!r} is not in {self.file}"
            text = text.replace(before, after)
        with connect(url) as conn, conn.transaction():
            conn.execute(text)  # type: ignore[arg-type]
            if self.also:
                conn.execute(self.also)  # type: ignore[arg-type]


ENTER_LOCK = "SELECT * INTO job FROM faultline.jobs WHERE id = NEW.job_id FOR UPDATE;"
OWN_LOCK = "SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = lock_own.job_id FOR UPDATE;"
JOB_LOCK = "SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = lock_job.job_id FOR UPDATE;"
FENCE_LOCK = "WHERE j.id = assert_fence.job_id FOR KEY SHARE;"
RECONCILE_LOCK = "ORDER BY j.created_at, j.id LIMIT max_jobs FOR UPDATE SKIP LOCKED);\n    IF"
CLAIM_LOCK = "ORDER BY w.next_run_at, w.id LIMIT wanted FOR UPDATE SKIP LOCKED) AS due"
HEART_FENCE = "AND faultline.is_holder(j, mine.token, mine.lease_id)\n"
FENCE_TOKEN = (
    "WHEN job.fencing_token IS DISTINCT FROM token OR job.lease_id IS DISTINCT FROM lease"
    " THEN 'token_mismatch'"
)
FENCE_STATE = "WHEN job.state <> 'running' THEN 'not_running'"
FENCE_CLOCK = "WHEN job.lease_expires_at <= clock_timestamp() THEN 'lease_expired'"
REFUSE_OWN = (
    "IF violation <> 'lease_expired' THEN\n"
    "        PERFORM faultline.refuse_stale(violation, lock_own.job_id"
)
RAISE_TOKEN = "attempts = j.attempts + 1, fencing_token = greatest(j.fencing_token, epoch) + 1"
NO_GUARDS = "ALTER TABLE faultline.jobs DISABLE TRIGGER guard_update;"
UNIQUE_CONFLICT = "ON CONFLICT (unique_key) DO UPDATE SET job_id = excluded.job_id WHERE false"
WAITING_LOCK = "WHERE j.id = ANY (changing) ORDER BY j.id FOR NO KEY UPDATE;"
KEPT_LOCK = "WHERE j.id = ANY (waiting) ORDER BY j.id FOR KEY SHARE;"
RETRY_REFUSAL = "IF other.holder IS NOT NULL AND job.state = 'failed' THEN"
SCHEDULE_LOCK = "WHERE s.name = lock_schedule.name FOR UPDATE SKIP LOCKED;"
SCHEDULE_REVISION = "IF schedule.revision = lock_schedule.revision AND schedule.paused_at IS NULL"
SCHEDULE_TIME = "AND schedule.next_fire_at IS NOT DISTINCT FROM expected_next_fire_at THEN"
ENTRY = "VALUES (commit.job_id, commit.fencing_token, commit.lease_id, commit.result);"

BATCH_JUDGED = "PERFORM faultline.refuse_stale_jobs(job_ids, fencing_tokens, lease_ids);"
BATCH_LOCK = "WHERE j.id = ANY (job_ids) ORDER BY j.id FOR KEY SHARE;"
BATCH_JOIN = "JOIN faultline.jobs AS j ON j.id = mine.job_id;"
BATCH_COUNT = "IF entered <> cardinality(job_ids) THEN"

MUTANTS = [
    SqlMutant(
        "the ledger does not lock the job",
        [(ENTER_LOCK, ENTER_LOCK.replace(" FOR UPDATE", ""))],
        ("mistaken-for-dead", "cancel"),
    ),
    SqlMutant(
        "the ledger does not compare tokens",
        [(FENCE_TOKEN, "WHEN false THEN 'token_mismatch'")],
        ("takeover", "three-workers"),
    ),
    SqlMutant(
        "the ledger does not check that the job is running",
        [(FENCE_STATE, "WHEN false THEN 'not_running'")],
        ("cancel", "mistaken-for-dead", "late-commit"),
    ),
    SqlMutant(
        "the ledger does not compare the expiry",
        [(FENCE_CLOCK, "WHEN false THEN 'lease_expired'")],
        ("takeover",),
    ),
    SqlMutant(
        "the fence reads the transaction's start time",
        [("WHEN job.lease_expires_at <= clock_timestamp()", "WHEN job.lease_expires_at <= now()")],
        ("takeover", "own-transaction"),
    ),
    SqlMutant(
        "a batch does not lock its jobs",
        [(BATCH_LOCK, BATCH_LOCK.replace(" FOR KEY SHARE", ""))],
        ("batch-handler-step",),
        file="batches.sql",
    ),
    SqlMutant(
        "a batch leaves out the entries of lost jobs",
        [
            (BATCH_JUDGED, ""),
            (
                BATCH_JOIN,
                f"{BATCH_JOIN[:-1]} AND faultline.fence_violation(j, mine.token, mine.lease_id)"
                " IS NULL;",
            ),
            (BATCH_COUNT, "IF false THEN"),
        ],
        ("batch-handler",),
        file="batches.sql",
    ),
    SqlMutant(
        "a fenced step does not lock the job",
        [(FENCE_LOCK, FENCE_LOCK.replace(" FOR KEY SHARE", ""))],
        ("fenced-step",),
    ),
    SqlMutant(
        "reconcile does not lock its jobs",
        [(RECONCILE_LOCK, RECONCILE_LOCK.replace(" FOR UPDATE SKIP LOCKED", ""))],
        ("cancel-expired",),
        file="recovery.sql",
    ),
    SqlMutant(
        "reconcile takes leases that have not expired",
        [
            (
                "WHERE j.state = 'running' AND j.lease_expires_at <= statement_timestamp()",
                "WHERE j.state = 'running'",
            )
        ],
        ("takeover", "heartbeat"),
        file="recovery.sql",
    ),
    SqlMutant(
        "reconcile takes jobs that are not running",
        [
            (
                "WHERE j.state = 'running' AND j.lease_expires_at <= statement_timestamp()",
                "WHERE j.lease_expires_at <= statement_timestamp()",
            )
        ],
        ("takeover", "reconcilers", "three-workers"),
        file="recovery.sql",
    ),
    SqlMutant(
        "any worker may fail or release a job",
        [(REFUSE_OWN, REFUSE_OWN.replace("violation <> 'lease_expired'", "false"))],
        ("stale-failure-report", "late-release"),
    ),
    SqlMutant(
        "a failure does not lock the job",
        [(OWN_LOCK, OWN_LOCK.replace(" FOR UPDATE", ""))],
        ("late-commit", "cancel-expired"),
    ),
    SqlMutant(
        "any worker may renew a lease",
        [(HEART_FENCE, "")],
        ("late-heartbeat",),
    ),
    SqlMutant(
        "a claim does not raise the token",
        [(RAISE_TOKEN, "attempts = j.attempts + 1")],
        ("takeover",),
        also=NO_GUARDS,
    ),
    SqlMutant(
        "a claim does not skip locked jobs",
        [(CLAIM_LOCK, CLAIM_LOCK.replace(" SKIP LOCKED", ""))],
        ("sql-clients", "three-claimants"),
    ),
    SqlMutant(
        "a claim does not lock its jobs",
        [(CLAIM_LOCK, CLAIM_LOCK.replace(" FOR UPDATE SKIP LOCKED", ""))],
        ("sql-clients", "three-claimants"),
    ),
    SqlMutant(
        "cancel and retry do not lock the job",
        [(JOB_LOCK, JOB_LOCK.replace(" FOR UPDATE", ""))],
        ("cancel", "retry"),
        file="operating.sql",
    ),
    SqlMutant(
        "attempts are not counted at the claim",
        [(RAISE_TOKEN, "fencing_token = j.fencing_token + 1")],
        ("last-attempt",),
    ),
    SqlMutant(
        "a conflict in the ledger is hidden, and its keys are weak",
        [
            (ENTRY, ENTRY.replace(";", " ON CONFLICT DO NOTHING;")),
            (FENCE_TOKEN, "WHEN false THEN 'token_mismatch'"),
            ("WHEN job.state = 'succeeded' THEN 'already_committed'", "WHEN false THEN ''"),
            (FENCE_STATE, "WHEN false THEN 'not_running'"),
        ],
        ("repeated-commit", "takeover"),
        also="ALTER TABLE faultline.ledger DROP CONSTRAINT ledger_pkey;",
    ),
    SqlMutant(
        "a key is looked up and then inserted",
        [
            (
                "ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;",
                "ON CONFLICT DO NOTHING;",
            )
        ],
        ("idempotency-key",),
        also="DROP INDEX faultline.jobs_idempotency_key;",
        file="enqueue.sql",
    ),
    SqlMutant(
        "a unique key is looked up and then inserted",
        [
            (UNIQUE_CONFLICT, ""),
            (
                "WHERE g.key IS NOT NULL\n    ORDER BY g.key, g.ordinal\n",
                "WHERE g.key IS NOT NULL AND NOT EXISTS (SELECT FROM faultline.unique_keys AS k"
                " WHERE k.unique_key = g.key)\n    ORDER BY g.key, g.ordinal\n",
            ),
        ],
        ("unique-job",),
        file="unique.sql",
    ),
    SqlMutant(
        "a unique conflict is judged without the key's lock",
        [(UNIQUE_CONFLICT, "ON CONFLICT DO NOTHING")],
        ("unique-replace", "unique-job"),
        file="unique.sql",
    ),
    SqlMutant(
        "a unique job is replaced without its row's lock",
        [
            (WAITING_LOCK, WAITING_LOCK.replace(" FOR NO KEY UPDATE", "")),
            (KEPT_LOCK, KEPT_LOCK.replace(" FOR KEY SHARE", "")),
        ],
        ("unique-replace",),
        file="unique.sql",
    ),
    SqlMutant(
        "a retry does not take the unique key",
        [(RETRY_REFUSAL, "IF false THEN")],
        ("unique-retry",),
        file="operating.sql",
    ),
    SqlMutant(
        "a schedule is compared without its row's lock",
        [(SCHEDULE_LOCK, SCHEDULE_LOCK.replace(" FOR UPDATE SKIP LOCKED", ""))],
        ("schedule-run-now",),
        file="schedules.sql",
    ),
    SqlMutant(
        "a firing does not compare what the scheduler has read",
        [
            (SCHEDULE_REVISION, "IF schedule.paused_at IS NULL"),
            (SCHEDULE_TIME, "THEN"),
        ],
        ("schedule-change",),
        file="schedules.sql",
    ),
    SqlMutant(
        "a batch does not lock its jobs",
        [("ORDER BY j.id FOR UPDATE SKIP LOCKED);", "ORDER BY j.id);")],
        ("batch-and-heartbeat",),
    ),
    SqlMutant(
        "a heartbeat waits for locked rows",
        [("ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED),", "ORDER BY j.id FOR NO KEY UPDATE),")],
        ("batch-and-heartbeat",),
    ),
    SqlMutant(
        "retry moves a job in any state",
        [("ELSIF job.state = 'failed' THEN", "ELSIF true THEN")],
        ("last-attempt",),
        file="operating.sql",
    ),
]
