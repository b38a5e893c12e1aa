"""Faultline with one guard removed at a time: the state machine must find each."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

_FILES = (
    "protocol.sql",
    "recovery.sql",
    "enqueue.sql",
    "snooze.sql",
    "guards.sql",
    "operating.sql",
)


@dataclass(frozen=True)
class ProtocolMutant:
    name: str
    old: str  # occurs once in these files together
    new: str
    is_quick: bool = False  # found within the first few examples, with any seed

    def sql(self) -> str:
        """A patch to apply to a database that has the schema."""
        files = resources.files("faultline.sql")
        text = "\n".join(files.joinpath(name).read_text() for name in _FILES)
        assert text.count(self.old) == 1, f"{self.name}: {text.count(self.old)} places to change"
        return text.replace(self.old, self.new)


MISMATCH = "job.fencing_token IS DISTINCT FROM token OR job.lease_id IS DISTINCT FROM lease"
LOCK_OWN = "faultline.lock_own({0}.job_id, {0}.fencing_token, {0}.lease_id);"
UNFENCED = "faultline.lock_job({0}.job_id);"

ATTEMPTS_NOT_COUNTED = ProtocolMutant(
    "attempts are not counted at the claim", "attempts = j.attempts + 1,", "", is_quick=True
)

MUTANTS = (
    ProtocolMutant("the token is not compared", MISMATCH, "job.lease_id IS DISTINCT FROM lease"),
    ProtocolMutant(
        "the lease is not compared", MISMATCH, "job.fencing_token IS DISTINCT FROM token"
    ),
    ProtocolMutant(
        "neither token nor lease are compared",
        f"WHEN {MISMATCH} THEN 'token_mismatch'",
        "WHEN false THEN ''",
        is_quick=True,
    ),
    ProtocolMutant(
        "expiry does not end a lease",
        "WHEN job.lease_expires_at <= clock_timestamp() THEN 'lease_expired'",
        "WHEN false THEN ''",
    ),
    ProtocolMutant(
        "a failure is not fenced", LOCK_OWN.format("fail"), UNFENCED.format("fail"), is_quick=True
    ),
    ProtocolMutant(
        "a release is not fenced",
        LOCK_OWN.format("release"),
        UNFENCED.format("release"),
        is_quick=True,
    ),
    ProtocolMutant(
        "a heartbeat is not fenced",
        "AND faultline.is_holder(j, mine.token, mine.lease_id)\n        RETURNING",
        "AND j.state = 'running'\n        RETURNING",
    ),
    ATTEMPTS_NOT_COUNTED,
    ProtocolMutant(
        "a release keeps the attempt",
        "'released', job.claimed_at);\n"
        "    UPDATE faultline.jobs SET state = 'queued', attempts = attempts - 1,",
        "'released', job.claimed_at);\n    UPDATE faultline.jobs SET state = 'queued',",
        is_quick=True,
    ),
    ProtocolMutant(
        "a snooze is not fenced",
        LOCK_OWN.format("snooze"),
        UNFENCED.format("snooze"),
        is_quick=True,
    ),
    ProtocolMutant(
        "a snooze keeps the attempt",
        "SET state = 'queued', attempts = j.attempts - 1, lease_owner = NULL",
        "SET state = 'queued', lease_owner = NULL",
        is_quick=True,
    ),
    ProtocolMutant(
        "a finished job can be cancelled",
        "IF job.state NOT IN ('queued', 'running') THEN\n        PERFORM",
        "IF false THEN\n        PERFORM",
        is_quick=True,
    ),
    ProtocolMutant(
        "a queued job can be retried", "ELSIF job.state = 'failed' THEN", "ELSE", is_quick=True
    ),
    ProtocolMutant(
        "a finished job can be retried",
        "IF job.state = 'succeeded' THEN\n        RAISE",
        "IF false THEN\n        RAISE",
    ),
    ProtocolMutant(
        "a key may stand for other work",
        "AND (j.task = given.task AND (",
        "AND false AND (j.task = given.task AND (",
    ),
    ProtocolMutant(
        "reconciling takes what has not expired",
        "WHERE j.state = 'running' AND j.lease_expires_at <= statement_timestamp()",
        "WHERE j.state = 'running'",
        is_quick=True,
    ),
    ProtocolMutant(
        "reconciling fails no job",
        "SET state = CASE WHEN h.attempts < h.max_attempts THEN 'queued' ELSE 'failed' END,\n"
        "                failed_reason = CASE WHEN h.attempts >= h.max_attempts THEN 'poison' END,",
        "SET state = 'queued',",
    ),
    ProtocolMutant(
        "a claim takes what is for later",
        "AND w.next_run_at <= statement_timestamp()",
        "",
    ),
    ProtocolMutant(
        "fenced writes are not fenced",
        "violation := faultline.fence_violation(job, assert_fence.fencing_token,"
        " assert_fence.lease_id);",
        "",
    ),
    ProtocolMutant(
        "a batch trusts its caller",
        "WHEN (current_setting('faultline.batch', true) IS DISTINCT FROM 'on')",
        "WHEN (false)",
    ),
    ProtocolMutant(
        "posing as a batch avoids the fence",
        "IF committed <> cardinality(job_ids) THEN",
        "IF false THEN",
    ),
    ProtocolMutant(
        "commit_many does not judge each row",
        "faultline.fence_violation(j, mine.token, mine.lease_id) AS violation\n"
        "              FROM unnest(job_ids, fencing_tokens, lease_ids) WITH ORDINALITY",
        "NULL::text AS violation\n"
        "              FROM unnest(job_ids, fencing_tokens, lease_ids) WITH ORDINALITY",
        is_quick=True,
    ),
    ProtocolMutant(
        "commit_many does not compare leases when it locks the rows",
        "WHERE j.id = ANY (job_ids) AND faultline.fence_violation(j, mine.token, mine.lease_id) IS NULL\n"
        "          FOR UPDATE OF j SKIP LOCKED",
        "WHERE j.id = ANY (job_ids)\n          FOR UPDATE OF j SKIP LOCKED",
    ),
    ProtocolMutant(
        "tokens may go down",
        "OR NEW.fencing_token < OLD.fencing_token\n",
        "",
    ),
    ProtocolMutant(
        "terminal states do not absorb",
        "(OLD.state = 'succeeded'\n        AND (NEW.state <> 'succeeded' OR",
        "(OLD.state = 'succeeded'\n        AND (false OR",
    ),
)
