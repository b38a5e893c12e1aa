"""Bugs in the worker, on which the database must not have to rely."""

from __future__ import annotations

from faultline_drills.mutants.mutant import EXECUTION, OUTCOMES, Edit, Mutant, drill

WORKER_MUTANTS = (
    Mutant(
        "lost_answer_taken_for_success",
        "a COMMIT without an answer is reported as done",
        drill("delayed_commit_message"),
        (
            Edit(
                OUTCOMES,
                "        if await self._persist(self._slow_path, in_ledger, lease):\n",
                "        if error is not None or await self._persist(self._slow_path, in_ledger, lease):\n",
            ),
        ),
    ),
    Mutant(
        "unanswered_commit_is_charged",
        "an attempt that got no answer to its COMMIT has failed",
        drill("unanswered_commit"),
        (
            Edit(
                OUTCOMES,
                "            if is_charged:\n                await self._fail(lease, cause",
                "            if True:\n                await self._fail(lease, cause",
            ),
        ),
    ),
    Mutant(
        "released_in_words_alone",
        "a worker says that it handed the job back, and keeps the lease until it runs out",
        drill("unanswered_commit"),
        (
            Edit(
                OUTCOMES,
                "        is_released = await self._persist(session, statement, lease)\n",
                "        is_released = statement is not None\n",
            ),
        ),
    ),
    Mutant(
        "blind_retry_of_a_commit",
        "after a COMMIT without an answer the handler runs again, and nobody asks the ledger",
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
        "stale_lease_retried",
        "a worker that was refused reads the newest token from the job, and commits under that",
        drill("takeover_after_fenced_step"),
        (
            Edit(
                OUTCOMES,
                "        claim = lease.claim\n        self._book.remove(lease)",
                "        running = Statement(\n"
                '            "SELECT lease_owner FROM faultline.jobs"\n'
                "            \" WHERE id = %s AND state = 'running'\",\n"
                "            (lease.claim.job_id,),\n"
                "            lambda rows: [owner for (owner,) in rows],\n"
                "        )\n"
                "        for owner in await self._slow_path.run(running):\n"
                "            for newest in await self._slow_path.run(protocol.leases_of(owner)):\n"
                "                if newest.job_id == lease.claim.job_id:\n"
                "                    lease.claim = newest\n"
                "                    return await self.commit(lease, None)\n"
                "        claim = lease.claim\n        self._book.remove(lease)",
            ),
        ),
    ),
    Mutant(
        "verdict_not_read",
        "a batch reports success whatever the database said",
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
        "a worker that was refused reports its job as done",
        drill("stale_takeover"),
        (
            Edit(
                EXECUTION,
                "            await outcomes.stale(lease, error)\n",
                "            outcomes.committed(lease)\n",
            ),
        ),
    ),
    Mutant(
        "outside_key_contains_the_token",
        "every attempt looks like a new call to the outside",
        drill("stale_external_call"),
        (
            Edit(
                "job.py",
                'see a repeated call as one."""\n        return ',
                'see a repeated call as one."""\n        return f"{self.token}:" + ',
            ),
        ),
    ),
    Mutant(
        "expiry_by_the_workers_clock",
        "the lease ends when the worker's own clock says so",
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
        blocks_the_drill=True,  # a lease that ended a day ago cannot be had
    ),
    Mutant(
        "mass_death_is_spared",
        "many workers killed at once are taken for a cut network, and their leases are waited for",
        drill("workers_killed_together"),
        (
            Edit(
                "reconciler/liveness.py",
                "        if seconds_since_own_loss is None or seconds_since_own_loss > RECONNECT_SECONDS:\n",
                "        if False:\n",
            ),
        ),
        blocks_the_drill=True,  # the drill waits in vain for the jobs
    ),
)
