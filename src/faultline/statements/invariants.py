"""The invariants of Faultline as queries that must return no rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, LiteralString

from faultline.statements.statement import Statement

_EVIDENCE_LIMIT = 20


@dataclass(frozen=True, slots=True)
class Invariant:
    name: str
    claim: str
    query: LiteralString  # returns each violation: a job's id, and what is wrong


@dataclass(frozen=True, slots=True)
class Finding:
    job_id: str
    evidence: str


INVARIANTS: tuple[Invariant, ...] = (
    Invariant(
        "one_effect",
        "no job has two entries in the ledger",
        """
        SELECT job_id, 'entries: ' || count(*) FROM faultline.ledger
        GROUP BY job_id HAVING count(*) > 1
        """,
    ),
    Invariant(
        "succeeded_is_in_the_ledger",
        "every succeeded job has its entry, under its own token and lease",
        """
        SELECT j.id, 'token ' || j.fencing_token || ', ledger token '
            || coalesce(l.fencing_token::text, 'none')
        FROM faultline.jobs AS j LEFT JOIN faultline.ledger AS l ON l.job_id = j.id
        WHERE j.state = 'succeeded' AND (l.fencing_token = j.fencing_token
            AND l.lease_id = j.lease_id) IS NOT TRUE
        """,
    ),
    Invariant(
        "the_ledger_means_succeeded",
        "every job with an entry in the ledger has succeeded",
        """
        SELECT j.id, 'state ' || j.state FROM faultline.ledger AS l
        JOIN faultline.jobs AS j ON j.id = l.job_id WHERE j.state <> 'succeeded'
        """,
    ),
    Invariant(
        "running_means_leased",
        "every running job has an owner, a lease and a token above zero",
        """
        SELECT id, 'owner ' || coalesce(lease_owner, 'none') || ', token ' || fencing_token
        FROM faultline.jobs WHERE state = 'running'
          AND (lease_owner IS NULL OR lease_id IS NULL OR fencing_token < 1)
        """,
    ),
    Invariant(
        "attempts_are_bounded",
        "no job has had more attempts than it may, and none waits with all of them spent",
        """
        SELECT id, attempts || ' of ' || max_attempts || ' attempts, ' || state
        FROM faultline.jobs
        WHERE attempts > max_attempts OR (state = 'queued' AND attempts >= max_attempts)
        """,
    ),
    Invariant(
        "refusals_were_right",
        "no refused write is in the ledger after all",
        # The worker is compared too: after a failover, another one may have got the same token.
        """
        SELECT r.job_id, 'refused token ' || r.stale_token FROM faultline.rejections AS r
        JOIN faultline.ledger AS l ON l.job_id = r.job_id AND l.fencing_token = r.stale_token
          AND l.worker = r.worker
        WHERE r.reason = 'token_mismatch'
        """,
    ),
    Invariant(
        "tokens_only_rise",
        "no recorded attempt has a token above its job's",
        """
        SELECT a.job_id, 'attempt token ' || a.fencing_token || ', job token ' || j.fencing_token
        FROM faultline.attempts_log AS a JOIN faultline.jobs AS j ON j.id = a.job_id
        WHERE a.fencing_token > j.fencing_token
        """,
    ),
    Invariant(
        "tokens_are_of_an_epoch",
        "no job has a token of an epoch that has not begun",
        """
        SELECT id, 'token ' || fencing_token || ', epoch ' || (fencing_token >> 22)
        FROM faultline.jobs WHERE fencing_token > 0
          AND NOT EXISTS (SELECT FROM faultline.epochs AS e WHERE e.epoch = fencing_token >> 22)
        """,
    ),
    Invariant(
        "stored_texts_are_within_limits",
        "no row is larger than the database accepts today",
        """
        SELECT found.job_id, found.what FROM (
            SELECT id::text, 'payload of ' || faultline.json_text_bound(payload) || ' bytes as text'
            FROM faultline.jobs WHERE CASE WHEN pg_column_size('{}'::jsonb || payload) <= 640 THEN false
            ELSE faultline.json_text_bound(payload) > 8388608 END
            UNION ALL
            SELECT job_id::text, 'result of ' || faultline.json_text_bound(result) || ' bytes as text'
            FROM faultline.ledger WHERE CASE WHEN pg_column_size('{}'::jsonb || result) <= 640
            THEN false ELSE faultline.json_text_bound(result) > 8388608 END
            UNION ALL
            SELECT id::text, 'lease_owner, failed_reason or last_error' FROM faultline.jobs
            WHERE octet_length(lease_owner) > 800 OR octet_length(failed_reason) > 400
            OR octet_length(last_error) > 42000
            UNION ALL
            SELECT job_id::text, 'worker or reason of refusal ' || id FROM faultline.rejections
            WHERE octet_length(worker) > 800 OR octet_length(reason) > 400
            UNION ALL
            SELECT job_id::text, 'worker or error of attempt ' || attempt FROM faultline.attempts_log
            WHERE octet_length(worker) > 800 OR octet_length(error) > 42000
        ) AS found (job_id, what)
        """,
    ),
    Invariant(
        "the_fence_is_up",
        "the triggers that refuse stale writes are in place and enabled",
        """
        SELECT '-', 'missing or disabled: ' || expected.relation || '.' || expected.name
        FROM (VALUES ('jobs', 'guard_insert'), ('jobs', 'guard_update'),
            ('ledger', 'enter_ledger'), ('ledger', 'seal_ledger'), ('ledger', 'guard_update'),
            ('ledger', 'guard_delete'), ('ledger', 'guard_truncate'),
            ('open_transactions', 'refuse_unfinished')) AS expected (relation, name)
        WHERE NOT EXISTS (SELECT FROM pg_trigger AS t
            WHERE t.tgrelid = to_regclass('faultline.' || expected.relation)
            AND t.tgname = expected.name AND t.tgenabled IN ('O', 'A'))
        """,
    ),
)


def check(invariant: Invariant) -> Statement[list[Finding]]:
    """Find the first violations of an invariant."""

    def read(rows: list[tuple[Any, ...]]) -> list[Finding]:
        return [Finding(str(job_id), str(evidence)) for job_id, evidence in rows]

    return Statement(f"{invariant.query} LIMIT {_EVIDENCE_LIMIT}", (), read)
