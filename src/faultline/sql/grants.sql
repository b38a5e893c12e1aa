-- The rights of each role. Roles do not include each other: grant an account every role that it needs.
--   producer   enqueues jobs, and waits for their results. It reads only the outcomes of jobs whose ids it knows.
--   worker     runs the protocol, recovery and retention. It reads the columns that these need of all jobs, and payloads only
--              of jobs that it claims or holds.
--   inspector  reads everything except the API's keys, and changes nothing.
--   operator   reads the same, cancels, retries, deletes, edits, pauses, purges, drains, and creates and revokes keys. It
--              cannot enqueue.
-- No role writes to a table: they call functions, which run as faultline_owner. So a worker with a bug, or of an old release,
-- cannot bypass the fence.
--
-- Applied after roles.sql, and after every upgrade that brings new functions. It first revokes what an earlier release granted
-- to these roles.

GRANT USAGE ON SCHEMA faultline TO faultline_producer, faultline_worker, faultline_inspector, faultline_operator;
REVOKE ALL ON ALL TABLES IN SCHEMA faultline
    FROM PUBLIC, faultline_producer, faultline_worker, faultline_inspector, faultline_operator;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA faultline
    FROM PUBLIC, faultline_producer, faultline_worker, faultline_inspector, faultline_operator;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA faultline
    FROM PUBLIC, faultline_producer, faultline_worker, faultline_inspector, faultline_operator;

-- ── Read ───────────────────────────────────────────────────────────────────────────────────────────────────────────

-- Every process first checks the schema's version, and may report the epoch.
GRANT SELECT ON faultline.migrations, faultline.epochs
    TO faultline_producer, faultline_worker, faultline_inspector, faultline_operator;
GRANT EXECUTE ON FUNCTION faultline.epoch_status()
    TO faultline_producer, faultline_worker, faultline_inspector, faultline_operator;

GRANT SELECT ON faultline.jobs, faultline.ledger, faultline.rejections, faultline.attempts_log, faultline.workers,
    faultline.paused_queues, faultline.deferred_jobs, faultline.job_progress, faultline.unique_jobs, faultline.unique_keys,
    faultline.audit_log, faultline.schedules, faultline.schedule_firings, faultline.idle_workers
    TO faultline_inspector, faultline_operator;

-- `faultline why` and the dashboard show which limits jobs wait for. A limit key has the value of an argument, so workers
-- do not read them; a cursor of repair_limits or idle_keys names one, where its page ends.
GRANT SELECT ON faultline.limits, faultline.limit_arguments, faultline.limit_states, faultline.places, faultline.waiting_jobs
    TO faultline_inspector, faultline_operator;
GRANT SELECT (job_id, queue, priority, due_at) ON faultline.waiting_jobs TO faultline_worker;
GRANT EXECUTE ON FUNCTION
    faultline.limits_in_use(),
    faultline.limit_uses(integer),
    faultline.idle_keys(text, integer)
    TO faultline_worker, faultline_inspector, faultline_operator;

-- The columns that recovery, counts and metrics need: no payload, no result, and no text of a handler's error.
GRANT SELECT (id, task, queue, priority, state, failed_reason, next_run_at, attempts, max_attempts, crashes, fencing_token,
              lease_id, lease_owner, lease_seconds, lease_expires_at, claimed_at, created_at, finished_at, expires_at)
    ON faultline.jobs TO faultline_worker;
GRANT SELECT (job_id, fencing_token, lease_id, worker, committed_at) ON faultline.ledger TO faultline_worker;
GRANT SELECT (id, job_id, attempt, fencing_token, worker, outcome, claimed_at, ended_at)
    ON faultline.attempts_log TO faultline_worker;
GRANT SELECT ON faultline.workers TO faultline_worker;
-- A scheduler computes times; the payload is the job's.
GRANT SELECT (name, cron, every_seconds, anchor, time_zone, missed, missed_limit, declared_by, revision, paused_at, decided_until,
              next_fire_at, reanchored_at, last_error)
    ON faultline.schedules TO faultline_worker;

GRANT EXECUTE ON FUNCTION
    faultline.lockers_of(uuid),
    faultline.queues(integer, integer),
    faultline.count_queued(text, timestamptz, timestamptz, integer),
    faultline.estimated_jobs(text, text, bigint),
    faultline.undeclared_schedules(),
    faultline.parked_for()
    TO faultline_worker, faultline_inspector, faultline_operator;

GRANT EXECUTE ON FUNCTION faultline.heads_of(text) TO faultline_inspector, faultline_operator;

-- PostgreSQL checks the limit of a result with the rights of the account that inserts into the ledger, which may be any.
GRANT EXECUTE ON FUNCTION faultline.json_text_bound(jsonb) TO PUBLIC;

-- The HTTP API finds a key by its prefix and compares hashes of secrets that are too long to guess. An operator lists keys, and
-- needs no hash for that.
GRANT SELECT (id, name, prefix, key_hash, scopes, revoked_at) ON faultline.api_keys TO faultline_producer;
GRANT SELECT (id, name, prefix, scopes, created_at, last_used_at, revoked_at) ON faultline.api_keys TO faultline_operator;

-- ── Call ───────────────────────────────────────────────────────────────────────────────────────────────────────────

-- A handler may enqueue further jobs.
GRANT EXECUTE ON FUNCTION
    faultline.enqueue(text, jsonb, text, integer, timestamptz, text, integer, text),
    faultline.enqueue_many(text, jsonb[], text, integer, timestamptz, text[], integer, text),
    faultline.enqueue_jobs(jsonb, text)
    TO faultline_producer, faultline_worker;

-- A handler that waits for another job needs the role of a producer too: workers can list ids, and must not read every result.
GRANT EXECUTE ON FUNCTION
    faultline.await_jobs(uuid[]),
    faultline.outcomes(uuid[])
    TO faultline_producer, faultline_operator;

GRANT EXECUTE ON FUNCTION
    faultline.touch_api_key(bigint)
    TO faultline_producer;

-- Called by the API, and by operators' commands.
GRANT EXECUTE ON FUNCTION faultline.record_refusal(text, text, text, integer) TO faultline_producer, faultline_operator;

GRANT EXECUTE ON FUNCTION
    faultline.claim(text, text[], integer, interval, jsonb, text[], bigint, integer),
    faultline.defer_many(uuid[], bigint[], uuid[], interval, text),
    faultline.leases_of(text),
    faultline.heartbeat(text, uuid[], bigint[], uuid[], interval),
    faultline.assert_fence(uuid, bigint, uuid, interval),
    faultline.open_transaction(uuid, bigint, uuid, boolean, interval),
    faultline.close_transaction(uuid, bigint, uuid, jsonb),
    faultline.open_batch(uuid[], bigint[], uuid[], boolean, interval),
    faultline.close_batch(uuid[], bigint[], uuid[], jsonb[]),
    faultline.reset_session(text[], text[]),
    faultline.commit(uuid, bigint, uuid, jsonb, interval),
    faultline.commit_many(uuid[], bigint[], uuid[], jsonb[]),
    faultline.fail(uuid, bigint, uuid, text, interval, text),
    faultline.release(uuid, bigint, uuid),
    faultline.snooze(uuid, bigint, uuid, interval, text),
    faultline.report_progress(uuid[], bigint[], uuid[], real[], text[]),
    faultline.release_after_outage(uuid, bigint, uuid, text),
    faultline.record_rejection(uuid, bigint, text, text),
    faultline.register_worker(text, text, integer, text[], boolean, integer),
    faultline.report_blocked(text, interval, uuid, text, text),
    faultline.drain_worker(text),
    faultline.deregister_worker(text),
    faultline.channel_of(text),
    faultline.listen_as(text),
    faultline.announce_idle(text, text[]),
    faultline.withdraw_idle(text, text[]),
    faultline.vanished_workers(),
    faultline.wake_for_due_jobs(),
    faultline.next_expiry(),
    faultline.bury_workers(text[]),
    faultline.declare_limits(jsonb, jsonb),
    faultline.declare_schedules(text, jsonb)
    TO faultline_worker;

-- Recovery and retention run in the leading reconciler, in a worker or on its own; an operator may run them by hand.
GRANT EXECUTE ON FUNCTION
    faultline.reconcile(integer, text[], uuid[], text[]),
    faultline.fail_expired(integer),
    faultline.repair_limits(integer, jsonb),
    faultline.clock_setback(),
    faultline.reschedule_stranded(jsonb, integer),
    faultline.end_lapsed_holders(interval, integer),
    faultline.purge_jobs(interval, interval, uuid, integer, boolean),
    faultline.purge_unique_keys(text, integer, boolean),
    faultline.purge_ledger(interval, uuid, integer, boolean),
    faultline.purge_audit(interval, bigint, integer, boolean),
    faultline.purge_firings(interval, jsonb, integer, boolean)
    TO faultline_worker, faultline_operator;

-- The leading reconciler fires schedules. An account that only operates does not: it could choose the planned times.
GRANT EXECUTE ON FUNCTION
    faultline.fire_schedule(text, bigint, timestamptz, timestamptz[], timestamptz, integer, timestamptz),
    faultline.plan_schedule(text, bigint, timestamptz, timestamptz, timestamptz),
    faultline.report_schedule_error(text, bigint, text)
    TO faultline_worker;

-- add_schedule also needs the right to enqueue.
GRANT EXECUTE ON FUNCTION
    faultline.add_schedule(jsonb, boolean),
    faultline.pause_schedule(text, text),
    faultline.resume_schedule(text),
    faultline.run_schedule(text),
    faultline.remove_schedule(text)
    TO faultline_operator;

GRANT EXECUTE ON FUNCTION
    faultline.cancel(uuid, text),
    faultline.retry(uuid),
    faultline.delete(uuid),
    faultline.edit_payload(uuid, jsonb),
    faultline.cancel_many(uuid[], text, jsonb),
    faultline.retry_many(uuid[], jsonb),
    faultline.delete_many(uuid[], jsonb),
    faultline.edit_many(uuid[], jsonb, jsonb),
    faultline.pause_queue(text, text),
    faultline.resume_queue(text),
    faultline.set_limit(text, integer, integer, double precision, integer, text, text),
    faultline.reset_limit(text),
    faultline.request_drain(text[]),
    faultline.bump_epoch(text),
    faultline.create_api_key(text, text, bytea, text[]),
    faultline.revoke_api_key(bigint)
    TO faultline_operator;
