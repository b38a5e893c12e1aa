"""Bugs in the transaction of a batch handler."""

from __future__ import annotations

from faultline_drills.mutants.mutant import (
    HANDLER_TRANSACTIONS,
    PROTOCOL,
    SEED,
    Edit,
    Layer,
    Mutant,
    drill,
    sql_mutant,
)

BATCHES = "sql/batches.sql"
BATCH_OUTCOMES = "workers/batch_outcomes.py"
_PROGRAMS = (
    *("batch-handler", "batch-handlers", "batch-handler-and-heartbeat"),
    *("batch-handler-step", "batch-handler-fails-one", "batch-handler-late-commit"),
)
EXPLORER_OF_BATCHES = Layer(
    "explorer of batches",
    (
        *("explore", "--seed", str(SEED), "--interleavings", "60"),
        *[word for name in _PROGRAMS for word in ("--program", name)],
    ),
)
_STALE_JOB = drill("stale_job_in_batch")
_OPEN = "    PERFORM faultline.refuse_stale_jobs(job_ids, fencing_tokens, lease_ids);\n"
_FENCE_OF_AN_ENTRY = "faultline.fence_violation(j, e.fencing_token, e.lease_id) IS NULL"
# The guard of the entries, so that a mutant of the entries themselves is not found by it alone.
_GUARD_OF_THE_COUNT = Edit(
    BATCHES, "        IF entered <> cardinality(job_ids) THEN\n", "        IF false THEN\n"
)

BATCH_MUTANTS = (
    Mutant(
        "batch_fences_its_first_job_only",
        "the opening and the entries of a batch check the lease of its first job alone",
        EXPLORER_OF_BATCHES,
        (
            Edit(
                BATCHES,
                _OPEN,
                "    PERFORM faultline.refuse_stale_jobs(job_ids[1:1], fencing_tokens[1:1],"
                " lease_ids[1:1]);\n",
            ),
            Edit(
                PROTOCOL,
                f"      AND {_FENCE_OF_AN_ENTRY};\n    GET DIAGNOSTICS committed",
                "      AND (e.job_id > (SELECT o.id FROM unnest(job_ids) AS o (id) ORDER BY 1 LIMIT 1)"  # noqa: S608
                f" OR {_FENCE_OF_AN_ENTRY});\n    GET DIAGNOSTICS committed",
            ),
        ),
    ),
    Mutant(
        "entry_of_a_lost_job_skipped",
        "a batch commits its writes without the entry of a job whose lease is lost",
        _STALE_JOB,
        (
            Edit(BATCHES, _OPEN, ""),
            Edit(
                BATCHES,
                "        JOIN faultline.jobs AS j ON j.id = mine.job_id;\n",
                "        JOIN faultline.jobs AS j ON j.id = mine.job_id"
                " AND faultline.fence_violation(j, mine.token, mine.lease_id) IS NULL;\n",
            ),
            _GUARD_OF_THE_COUNT,
        ),
    ),
    sql_mutant(
        "batch_opened_without_locks",
        "a job of an open batch can be taken over",
        EXPLORER_OF_BATCHES,
        (
            "PERFORM FROM faultline.jobs AS j WHERE j.id = ANY (job_ids) ORDER BY j.id FOR KEY SHARE;",
            "PERFORM FROM faultline.jobs AS j WHERE j.id = ANY (job_ids) ORDER BY j.id;",
        ),
        path=BATCHES,
    ),
    Mutant(
        "lost_jobs_of_a_batch_reported_as_committed",
        "the worker reports success for the other jobs of a refused batch",
        _STALE_JOB,
        (
            Edit(
                BATCH_OUTCOMES,
                "        ended = await self._end_failed(attempt, but=refused.keys())\n"
                "        return {",
                "        for lease in leases:\n"
                "            if lease not in refused:\n"
                "                self._outcomes.committed(lease)\n"
                "        ended = set(leases)\n"
                "        return {",
            ),
        ),
    ),
    Mutant(
        "unanswered_batch_guessed",
        "the other jobs of an unanswered batch are ended before its first job is settled",
        EXPLORER_OF_BATCHES,
        (
            Edit(
                BATCH_OUTCOMES,
                "            if is_committed:\n                self._outcomes.committed(lease)\n",
                "            if True:\n                self._outcomes.committed(lease)\n",
            ),
        ),
    ),
    Mutant(
        "batch_half_closed",
        "a batch commits although only its first job has an entry",
        drill("handler_ends_its_transaction"),
        (
            Edit(
                HANDLER_TRANSACTIONS,
                "        IF NOT FOUND OR (NEW.batch_id IS NOT NULL AND",
                "        IF NOT FOUND OR (false AND",
            ),
        ),
    ),
)
