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
        "expired_jobs_never_start",
        "no job started for the first time after it had expired",
        # A minute more is allowed, because a claim compares before it waits for locks.
        """
        SELECT id, 'started ' || date_trunc('second', claimed_at - expires_at) || ' late' FROM faultline.jobs
        WHERE expires_at IS NOT NULL AND attempts = 1 AND state IN ('running', 'succeeded')
          AND claimed_at > expires_at + interval '1 minute'
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
        "snoozes_are_merged",
        "no job's log has more than 100 snoozes: the oldest row counts those before it",
        """
        SELECT job_id, count(*) || ' rows' FROM faultline.attempts_log
        WHERE outcome = 'snoozed' GROUP BY job_id HAVING count(*) > 100
        """,
    ),
    Invariant(
        "progress_is_of_a_claim",
        "every report of progress belongs to a job, and to a token that it has had",
        """
        SELECT p.job_id, 'reported token ' || p.fencing_token || ', job token '
            || coalesce(j.fencing_token::text, 'none')
        FROM faultline.job_progress AS p LEFT JOIN faultline.jobs AS j ON j.id = p.job_id
        WHERE (p.fencing_token BETWEEN 1 AND j.fencing_token) IS NOT TRUE
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
        "running_jobs_have_their_places",
        "every running job has a place under each limit of concurrency that applies to it",
        """
        SELECT j.id, 'no place under ' || a.limit_name FROM faultline.jobs AS j
        CROSS JOIN LATERAL (
            SELECT l.name AS limit_name FROM faultline.limits AS l
            WHERE l.max_running IS NOT NULL AND l.name IN ('queue:' || j.queue, 'task:' || j.task)
            UNION ALL
            SELECT l.name FROM faultline.limit_arguments AS b
            JOIN faultline.limits AS l ON l.name = b.limit_name AND l.max_running IS NOT NULL
            WHERE b.task = j.task AND coalesce(j.payload ->> b.argument, b.fallback) IS NOT NULL
        ) AS a
        WHERE j.state = 'running' AND NOT EXISTS (SELECT FROM faultline.places AS p
            WHERE p.job_id = j.id AND split_part(p.limit_key, '=', 1) = a.limit_name)
        """,
    ),
    Invariant(
        "places_belong_to_running_jobs",
        "no job has had a place for more than a minute without running",
        """
        SELECT p.job_id, p.limit_key || ', job ' || coalesce(j.state, 'unknown')
        FROM faultline.places AS p LEFT JOIN faultline.jobs AS j ON j.id = p.job_id
        WHERE j.state IS DISTINCT FROM 'running'
          AND p.taken_at < clock_timestamp() - interval '1 minute'
          AND coalesce(j.finished_at, j.claimed_at, p.taken_at) < clock_timestamp() - interval '1 minute'
        """,
    ),
    Invariant(
        "limits_are_not_exceeded",
        "no limit has had more jobs start than it allows since it was changed",
        """
        SELECT min(p.job_id::text), p.limit_key || ': ' || count(*) || ' of ' || l.max_running
        FROM faultline.places AS p JOIN faultline.limits AS l ON l.name = split_part(p.limit_key, '=', 1)
        WHERE p.taken_at > l.changed_at
        GROUP BY p.limit_key, l.max_running HAVING count(*) > l.max_running
        """,
    ),
    Invariant(
        "rates_are_not_exceeded",
        "no rate has been exceeded in any period since it was changed",
        # Of each key, n - rate * t of start n at time t rises by the burst at most, over any period. One job
        # and a second of the rate more are allowed, because a clock may be corrected. A limit that several
        # tasks share is left out: it may have applied to one of them later than to the others.
        """
        SELECT DISTINCT ON (f.limit_key) f.id, f.limit_key || ': ' || ceil(f.excess)
            || ' too many up to ' || date_trunc('second', f.claimed_at)
        FROM (
            SELECT r.id, r.limit_key, r.claimed_at, r.level + 1 - r.burst - (1 + r.rate) - min(r.level) OVER (
                PARTITION BY r.limit_key ORDER BY r.claimed_at, r.id ROWS UNBOUNDED PRECEDING) AS excess
            FROM (
                SELECT j.id, j.claimed_at, a.limit_key, a.burst, a.rate, row_number() OVER (
                    PARTITION BY a.limit_key ORDER BY j.claimed_at, j.id)
                    - a.rate * extract(epoch FROM j.claimed_at)::float8 AS level
                FROM faultline.jobs AS j CROSS JOIN LATERAL (
                    SELECT l.name::text AS limit_key, l.burst, l.rate_jobs / l.rate_seconds AS rate,
                        l.changed_at
                    FROM faultline.limits AS l
                    WHERE l.rate_jobs IS NOT NULL AND l.name IN ('queue:' || j.queue, 'task:' || j.task)
                    UNION ALL
                    SELECT l.name || '=' || coalesce(j.payload ->> b.argument, b.fallback), l.burst,
                        l.rate_jobs / l.rate_seconds, l.changed_at
                    FROM faultline.limit_arguments AS b
                    JOIN faultline.limits AS l ON l.name = b.limit_name AND l.rate_jobs IS NOT NULL
                    WHERE b.task = j.task AND coalesce(j.payload ->> b.argument, b.fallback) IS NOT NULL
                      AND NOT EXISTS (SELECT FROM faultline.limit_arguments AS o
                          WHERE o.limit_name = b.limit_name AND o.task <> b.task)
                      AND NOT EXISTS (SELECT FROM faultline.attempts_log AS e
                          WHERE e.job_id = j.id AND e.outcome = 'edited')
                ) AS a
                WHERE j.limited AND j.state <> 'queued' AND j.claimed_at > a.changed_at) AS r) AS f
        WHERE f.excess > 0 ORDER BY f.limit_key, f.excess DESC
        """,
    ),
    Invariant(
        "waiting_jobs_are_in_a_line",
        "every job that claims pass over waits for a limit",
        """
        SELECT j.id, 'next_run_at ' || j.next_run_at FROM faultline.jobs AS j
        WHERE j.state = 'queued' AND j.next_run_at > clock_timestamp() + interval '8000000 hours'
          AND NOT EXISTS (SELECT FROM faultline.waiting_jobs AS w WHERE w.job_id = j.id)
        """,
    ),
    Invariant(
        "one_job_counts_for_a_unique_key",
        "no two jobs count for one unique key",
        """
        SELECT max(u.job_id::text), count(*) || ' jobs count for ' || left(u.unique_key, 200)
        FROM faultline.unique_jobs AS u JOIN faultline.jobs AS j ON j.id = u.job_id
        WHERE u.held_until > clock_timestamp() OR (j.state = 'queued' AND j.fencing_token = 0)
          OR (u.while_ = 'unfinished' AND j.state IN ('queued', 'running'))
        GROUP BY u.unique_key HAVING count(*) > 1
        """,
    ),
    Invariant(
        "unique_keys_name_the_job_that_counts",
        "every job that counts for a unique key holds it, so that an enqueue meets it",
        """
        SELECT u.job_id, coalesce('job ' || k.job_id || ' holds ', 'no job holds ')
            || left(u.unique_key, 200)
        FROM faultline.unique_jobs AS u JOIN faultline.jobs AS j ON j.id = u.job_id
        LEFT JOIN faultline.unique_keys AS k ON k.unique_key = u.unique_key
        WHERE k.job_id IS DISTINCT FROM u.job_id
          AND (u.held_until > clock_timestamp() OR (j.state = 'queued' AND j.fencing_token = 0)
            OR (u.while_ = 'unfinished' AND j.state IN ('queued', 'running')))
        """,
    ),
    Invariant(
        "unique_jobs_exist",
        "every row of unique_jobs belongs to a job",
        """
        SELECT u.job_id, 'no such job; its unique key is ' || left(u.unique_key, 200)
        FROM faultline.unique_jobs AS u
        WHERE NOT EXISTS (SELECT FROM faultline.jobs AS j WHERE j.id = u.job_id)
        """,
    ),
    Invariant(
        "a_schedule_has_recorded_what_it_decided",
        "the newest firing of every schedule is its last planned time",
        """
        SELECT '-', s.name || ': last planned ' || coalesce(s.last_planned_at::text, 'never') || ', recorded '
            || coalesce(f.newest::text, 'never')
        FROM faultline.schedules AS s CROSS JOIN LATERAL (
            SELECT max(f.planned_at) AS newest FROM faultline.schedule_firings AS f
            WHERE f.schedule = s.name AND f.outcome <> 'manual') AS f
        WHERE s.last_planned_at IS DISTINCT FROM f.newest
        """,
    ),
    Invariant(
        "a_firing_has_its_job",
        "the job of every firing has its planned time, or was purged",
        """
        SELECT j.id, 'of schedule ' || f.schedule || ' at ' || f.planned_at
        FROM faultline.schedule_firings AS f JOIN faultline.jobs AS j ON j.id = f.job_id
        WHERE j.scheduled_for IS DISTINCT FROM f.planned_at
        """,
    ),
    Invariant(
        "a_scheduled_job_has_its_firing",
        "every job with a planned time belongs to exactly one firing",
        """
        SELECT j.id, 'planned at ' || j.scheduled_for || ', firings: ' || count(f.job_id)
        FROM faultline.jobs AS j LEFT JOIN faultline.schedule_firings AS f ON f.job_id = j.id
        WHERE j.scheduled_for IS NOT NULL GROUP BY j.id HAVING count(f.job_id) <> 1
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
