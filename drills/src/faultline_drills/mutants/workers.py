"""Bugs in the worker, from which the database must be safe."""

from __future__ import annotations

from faultline_drills.mutants.mutant import (
    EXECUTION,
    OUTCOMES,
    UNANSWERED_COMMIT,
    Edit,
    Mutant,
    drill,
)

WORKER_MUTANTS = (
    Mutant(
        "lost_reply_taken_for_success",
        "a COMMIT without a reply is reported as success",
        drill("delayed_commit_message"),
        (
            Edit(
                UNANSWERED_COMMIT,
                "    if await outcomes.persist(outcomes.session, in_ledger, lease):\n",
                "    if error is not None or await outcomes.persist(outcomes.session, in_ledger, lease):\n",
            ),
        ),
    ),
    Mutant(
        "unanswered_commit_uses_an_attempt",
        "an attempt whose COMMIT got no reply counts as failed",
        drill("unanswered_commit"),
        (
            Edit(
                UNANSWERED_COMMIT,
                "        elif is_charged:\n",
                "        elif True:\n",
            ),
        ),
    ),
    Mutant(
        "release_not_written",
        "a worker reports a release that it did not write, and keeps the lease until it expires",
        drill("unanswered_commit"),
        (
            Edit(
                OUTCOMES,
                "        is_released = await self.persist(session, statement, lease)\n",
                "        is_released = statement is not None\n",
            ),
        ),
    ),
    Mutant(
        "commit_retried_without_reading_the_ledger",
        "after a COMMIT without a reply the handler runs again without reading the ledger",
        drill("lost_commit_acknowledgement"),
        (
            Edit(
                EXECUTION,
                "        elif phase is CommitPhase.FENCED:\n",
                "        elif phase is CommitPhase.FENCED and error is not None:\n"
                "            attempt.transactions.phase = CommitPhase.UNCOMMITTED\n"
                "            await self._write_outcome(attempt, await attempt.run(self._resources))\n"
                "        elif phase is CommitPhase.FENCED:\n",
            ),
        ),
    ),
    Mutant(
        "commit_under_another_workers_token",
        "a refused worker reads the newest token from the job and commits under it",
        drill("takeover_after_fenced_step"),
        (
            Edit(
                OUTCOMES,
                "        self.stop_renewing(lease)\n        claim = lease.claim\n",
                "        running = Statement(\n"
                '            "SELECT lease_owner FROM faultline.jobs"\n'
                "            \" WHERE id = %s AND state = 'running'\",\n"
                "            (lease.claim.job_id,),\n"
                "            lambda rows: [owner for (owner,) in rows],\n"
                "        )\n"
                "        for owner in await self.session.run(running):\n"
                "            for newest in await self.session.run(protocol.leases_of(owner)):\n"
                "                if newest.job_id == lease.claim.job_id:\n"
                "                    lease.claim = newest\n"
                "                    return await self.commit(lease, None)\n"
                "        self.stop_renewing(lease)\n        claim = lease.claim\n",
            ),
        ),
    ),
    Mutant(
        "batch_verdict_ignored",
        "a batch reports success whatever PostgreSQL answered",
        drill("stale_batch"),
        (
            Edit(
                OUTCOMES,
                "        elif verdict.outcome is CommitOutcome.STALE:\n",
                "        elif verdict.outcome is None:\n",
            ),
        ),
    ),
    Mutant(
        "refusal_taken_for_success",
        "a refused worker reports success",
        drill("stale_takeover"),
        (
            Edit(
                EXECUTION,
                "            await outcomes.record_rejection(lease, error)\n",
                "            outcomes.committed(lease)\n",
            ),
        ),
    ),
    Mutant(
        "idempotency_key_contains_the_token",
        "external systems see every attempt as a new call",
        drill("stale_external_call"),
        (
            Edit(
                "job.py",
                "        return self._claim.id\n",
                '        return f"{self.token}:{self._claim.id}"\n',
            ),
        ),
    ),
    Mutant(
        "expiry_by_the_workers_clock",
        "the worker's clock decides when a lease expires",
        drill("worker_clock_behind"),
        (
            Edit(
                "statements/protocol.py",
                "FROM faultline.claim(%s, %s, %s, %s",
                "FROM faultline.claim(%s, %s, %s, to_timestamp(%s) - clock_timestamp()",
            ),
            Edit(
                "statements/protocol.py",
                "(worker, list(queues), batch_size, _seconds(lease_seconds)",
                "(worker, list(queues), batch_size, __import__('time').time() + lease_seconds",
            ),
        ),
        blocks_the_drill=True,  # a lease that expired a day ago is never granted
    ),
    Mutant(
        "mass_kill_taken_for_a_partition",
        "many workers killed at once are taken for a network partition, and their leases must expire",
        drill("workers_killed_together"),
        (
            Edit(
                "reconciler/liveness.py",
                "        if seconds_since_own_loss is None or seconds_since_own_loss > RECONNECT_SECONDS:\n",
                "        if False:\n",
            ),
        ),
        blocks_the_drill=True,  # the drill waits for the jobs until its timeout
    ),
)
