"""The bugs that a queue like this one could have, each as an edit of Faultline's own source.

Every mutant names the layer that must find it. A mutant that nothing finds would mean that a line of
the protocol could be lost without anybody noticing.
"""

from __future__ import annotations

from dataclasses import dataclass

PROTOCOL = "sql/protocol.sql"
GUARDS = "sql/guards.sql"
MIGRATION = "sql/migrations/0001_initial.sql"
SETTLEMENT = "workers/settlement.py"


@dataclass(frozen=True, slots=True)
class Edit:
    path: str  # within the package
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Layer:
    """A command of `faultline drill` that is green on Faultline and must not be on the mutant."""

    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    bug: str  # what the programmer got wrong, in a few words
    killed_by: Layer
    edits: tuple[Edit, ...]
    stops_everything: bool = False  # so much so that the story cannot be told: that is noticed, too


def drill(*scenarios: str) -> Layer:
    options = ("--jobs", "6", "--timeout-seconds", "30")
    return Layer(f"drill {' '.join(scenarios)}", ("run", *scenarios, *options))


EXPLORER = Layer("explorer", ("explore", "--schedules", "60"))
PAPERS = drill("wrong_papers")

_FENCE = (
    "WHEN job.fencing_token IS DISTINCT FROM token OR job.lease_id IS DISTINCT FROM lease"
    " THEN 'token_mismatch'"
)
_HELD = "CASE WHEN j.fencing_token = mine.token AND j.lease_id = mine.lease_id AND j.state = 'running'\n"


def _sql(
    name: str,
    bug: str,
    killed_by: Layer,
    *changes: tuple[str, str],
    stops_everything: bool = False,
) -> Mutant:
    edits = tuple(Edit(PROTOCOL, old, new) for old, new in changes)
    return Mutant(name, bug, killed_by, edits, stops_everything)


FENCE_MUTANTS = (
    _sql(
        "token_predicate_dropped",
        "the fence compares the lease alone",
        PAPERS,
        (_FENCE, "WHEN job.lease_id IS DISTINCT FROM lease THEN 'token_mismatch'"),
    ),
    _sql(
        "nonce_dropped",
        "the fence compares the token alone",
        PAPERS,
        (_FENCE, "WHEN job.fencing_token IS DISTINCT FROM token THEN 'token_mismatch'"),
    ),
    _sql(
        "any_older_token_accepted",
        "= became >= on the token",
        PAPERS,
        (
            "job.fencing_token IS DISTINCT FROM token OR job.lease_id",
            "NOT job.fencing_token >= token OR job.lease_id",
        ),
    ),
    _sql(
        "token_and_nonce_dropped",
        "any worker that ever had the job may write",
        EXPLORER,
        (_FENCE, "WHEN false THEN ''"),
    ),
    _sql(
        "running_not_required",
        "a job that was given back can still be committed",
        PAPERS,
        ("WHEN job.state <> 'running' THEN 'not_running'", "WHEN false THEN ''"),
    ),
    _sql(
        "frozen_clock",
        "now() stands still while the transaction runs",
        drill("slow_transaction"),
        (
            "WHEN job.lease_expires_at <= clock_timestamp() THEN 'lease_expired'",
            "WHEN job.lease_expires_at <= now() THEN 'lease_expired'",
        ),
    ),
    _sql(
        "lease_holds_at_its_end",
        "<= became < at expiry",
        drill("edge_of_the_lease"),
        (
            "WHEN job.lease_expires_at <= clock_timestamp() THEN",
            "WHEN job.lease_expires_at < clock_timestamp() THEN",
        ),
    ),
    _sql(
        "expiry_ignored",
        "the fence does not look at the clock",
        PAPERS,
        ("WHEN job.lease_expires_at <= clock_timestamp() THEN 'lease_expired'\n", ""),
    ),
    _sql(
        "batch_not_fenced",
        "an entry that calls itself part of a batch is believed",
        PAPERS,
        ("        IF committed <> entered THEN\n", "        IF false THEN\n"),
    ),
    _sql(
        "loser_hidden",
        "an insert that enters nothing passes for a commit",
        PAPERS,
        ("    IF entered = 0 THEN\n", "    IF false THEN\n"),
    ),
    Mutant(
        "ledger_keyed_by_the_pair",
        "UNIQUE (job_id) became UNIQUE (job_id, fencing_token)",
        drill("one_guard_down"),
        (
            Edit(MIGRATION, "job_id        uuid        PRIMARY KEY,", "job_id uuid NOT NULL,"),
            Edit(
                MIGRATION,
                "UNIQUE (job_id, fencing_token)\n",
                "PRIMARY KEY (job_id, fencing_token)\n",
            ),
        ),
    ),
    Mutant(
        "trigger_disabled",
        "the fence is in place and switched off",
        drill("stale_takeover"),
        (
            Edit(
                GUARDS,
                "CREATE OR REPLACE TRIGGER guard_truncate",
                "ALTER TABLE faultline.ledger DISABLE TRIGGER enter_ledger;\n"
                "CREATE OR REPLACE TRIGGER guard_truncate",
            ),
        ),
        stops_everything=True,  # no worker starts where the fence is down
    ),
)

CLAIM_MUTANTS = (
    _sql(
        "token_not_raised",
        "a job that is claimed again keeps its token",
        drill("stale_takeover"),
        ("fencing_token = j.fencing_token + 1,", "fencing_token = greatest(j.fencing_token, 1),"),
        stops_everything=True,  # the guards refuse such a claim, for ever
    ),
    _sql(
        "attempt_not_counted_at_claim",
        "a job that kills its worker never runs out of attempts",
        EXPLORER,
        ("attempts = j.attempts + 1, fencing_token", "attempts = j.attempts, fencing_token"),
    ),
    _sql(
        "claims_wait_for_locks",
        "SKIP LOCKED is missing from the claim",
        EXPLORER,
        (
            "ORDER BY w.next_run_at, w.id LIMIT wanted FOR UPDATE SKIP LOCKED",
            "ORDER BY w.next_run_at, w.id LIMIT wanted FOR UPDATE",
        ),
    ),
    _sql(
        "claim_without_lock",
        "two claims read the same job before either has taken it",
        EXPLORER,
        (
            "ORDER BY w.next_run_at, w.id LIMIT wanted FOR UPDATE SKIP LOCKED",
            "ORDER BY w.next_run_at, w.id LIMIT wanted",
        ),
    ),
    Mutant(
        "key_by_select_then_insert",
        "the idempotency key is looked up first and not unique",
        drill("duplicate_submission"),
        (
            Edit(
                MIGRATION,
                "CREATE UNIQUE INDEX jobs_idempotency_key",
                "CREATE INDEX jobs_idempotency_key",
            ),
            Edit(
                PROTOCOL,
                "    ORDER BY given.key, given.ordinal\n"
                "    ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;",
                "    WHERE NOT EXISTS (SELECT FROM faultline.jobs AS j WHERE j.idempotency_key = given.key)\n"
                "    ORDER BY given.key, given.ordinal;",
            ),
        ),
    ),
    _sql(
        "conflicting_key_ignored",
        "another payload under the same key is taken for the same job",
        drill("duplicate_submission"),
        (
            "        ELSIF FOUND THEN\n            RAISE",
            "        ELSIF false THEN\n            RAISE",
        ),
    ),
)

LOCK_MUTANTS = (
    _sql(
        "commit_without_lock",
        "the fence is checked and the job can change before the entry",
        EXPLORER,
        (
            "SELECT * INTO job FROM faultline.jobs WHERE id = NEW.job_id FOR UPDATE;",
            "SELECT * INTO job FROM faultline.jobs WHERE id = NEW.job_id;",
        ),
    ),
    _sql(
        "commit_many_without_lock",
        "a batch is judged before its rows are held",
        EXPLORER,
        (
            "                             ORDER BY j.id FOR UPDATE SKIP LOCKED);\n    verdicts",
            "                             ORDER BY j.id);\n    verdicts",
        ),
    ),
    _sql(
        "fail_and_release_without_lock",
        "giving up is checked and the job can change before it is written",
        EXPLORER,
        (
            "SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = lock_own.job_id FOR UPDATE;",
            "SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = lock_own.job_id;",
        ),
    ),
    _sql(
        "cancel_and_retry_without_lock",
        "an operator's word overtakes a commit in flight",
        EXPLORER,
        (
            "SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = lock_job.job_id FOR UPDATE;",
            "SELECT * INTO job FROM faultline.jobs AS j WHERE j.id = lock_job.job_id;",
        ),
    ),
    _sql(
        "assert_fence_without_lock",
        "a fenced step is checked and the job can be taken over before it commits",
        EXPLORER,
        (
            "WHERE j.id = assert_fence.job_id FOR KEY SHARE;",
            "WHERE j.id = assert_fence.job_id;",
        ),
    ),
    _sql(
        "heartbeat_without_lock",
        "a renewal waits behind whoever holds the row",
        EXPLORER,
        (
            "WHERE j.id = ANY (job_ids) ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED),",
            "WHERE j.id = ANY (job_ids) ORDER BY j.id),",
        ),
    ),
    _sql(
        "reconcile_expired_without_lock",
        "the reconciler reads, and writes what has changed since",
        EXPLORER,
        (
            "ORDER BY j.lease_expires_at LIMIT max_jobs FOR UPDATE SKIP LOCKED);",
            "ORDER BY j.lease_expires_at LIMIT max_jobs);",
        ),
    ),
    _sql(
        "reconcile_lost_without_lock",
        "the same for the jobs of dead workers",
        EXPLORER,
        (
            "ORDER BY j.lease_expires_at LIMIT max_jobs - cardinality(expired) FOR UPDATE SKIP LOCKED);",
            "ORDER BY j.lease_expires_at LIMIT max_jobs - cardinality(expired));",
        ),
    ),
)

VERB_MUTANTS = (
    _sql(
        "reconcile_without_predicate",
        "the reconciler takes back leases that have not run out",
        PAPERS,
        (
            "j.state = 'running' AND j.lease_expires_at <= statement_timestamp()",
            "j.state = 'running'",
        ),
    ),
    _sql(
        "retry_without_state_guard",
        "a running job is queued again",
        PAPERS,
        (
            "    ELSIF job.state = 'failed' THEN\n",
            "    ELSIF job.state IN ('failed', 'running') THEN\n",
        ),
    ),
    _sql(
        "cancel_unfenced",
        "a finished job is cancelled",
        PAPERS,
        (
            "IF job.state NOT IN ('queued', 'running') THEN\n        RETURN",
            "IF false THEN\n        RETURN",
        ),
    ),
    _sql(
        "heartbeat_unfenced",
        "a stale worker renews the lease of the one that took over",
        PAPERS,
        (
            f"          AND {_HELD}              THEN true ELSE false END\n",
            "          AND j.state = 'running'\n",
        ),
    ),
    _sql(
        "release_without_token",
        "a stale worker gives back a job that another one runs",
        EXPLORER,
        (
            "lock_own(release.job_id, release.fencing_token, release.lease_id);",
            "lock_job(release.job_id);",
        ),
    ),
    _sql(
        "fail_without_token",
        "a late failure queues a job that another one runs",
        EXPLORER,
        (
            "job  faultline.jobs := faultline.lock_own(fail.job_id, fail.fencing_token, fail.lease_id);",
            "job  faultline.jobs := faultline.lock_job(fail.job_id);",
        ),
    ),
)

WORKER_MUTANTS = (
    Mutant(
        "lost_answer_taken_for_success",
        "a COMMIT without an answer is reported as done",
        drill("delayed_commit_message"),
        (
            Edit(
                SETTLEMENT,
                "        if await self._persist(self._desk, in_ledger, lease):\n",
                "        if error is not None or await self._persist(self._desk, in_ledger, lease):\n",
            ),
        ),
    ),
    Mutant(
        "verdict_not_read",
        "a batch reports success whatever the database said",
        drill("stale_batch"),
        (
            Edit(
                SETTLEMENT,
                "        elif verdict.outcome is CommitOutcome.STALE:\n",
                "        elif verdict.outcome is None:\n",
            ),
        ),
    ),
    Mutant(
        "refusal_taken_for_success",
        "a worker that was refused reports its job as done",
        drill("stale_takeover"),
        (
            Edit(
                "workers/executor.py",
                "            await settlement.stale(lease, error)\n",
                "            settlement.committed(lease)\n",
            ),
        ),
    ),
    Mutant(
        "outside_key_contains_the_token",
        "every attempt looks like a new call to the outside",
        drill("outside_effect"),
        (
            Edit(
                "job.py",
                "        return str(self._claim.job_id)\n",
                '        return f"{self._claim.job_id}:{self._claim.fencing_token}"\n',
            ),
        ),
    ),
    Mutant(
        "expiry_by_the_workers_clock",
        "the lease ends when the worker's own clock says so",
        drill("worker_clock_behind"),
        (
            Edit(
                "protocol.py",
                '" crashes FROM faultline.claim(%s, %s, %s, %s)",\n'
                "        (worker, list(queues), batch_size, _seconds(lease_seconds)),\n",
                '" crashes FROM faultline.claim(%s, %s, %s, to_timestamp(%s) - clock_timestamp())",\n'
                "        (worker, list(queues), batch_size, __import__('time').time() + lease_seconds),\n",
            ),
        ),
        stops_everything=True,  # a lease that ended a day ago cannot be had
    ),
)

MUTANTS: tuple[Mutant, ...] = (
    *FENCE_MUTANTS,
    *CLAIM_MUTANTS,
    *LOCK_MUTANTS,
    *VERB_MUTANTS,
    *WORKER_MUTANTS,
)
