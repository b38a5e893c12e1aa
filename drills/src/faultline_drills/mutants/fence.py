"""Bugs in the fence, and in the ledger that it guards."""

from __future__ import annotations

from faultline_drills.mutants.mutant import (
    EXPLORER,
    GUARDS,
    MIGRATION,
    MISMATCHED,
    Edit,
    Mutant,
    drill,
    sql_mutant,
)

_FENCE = (
    "WHEN job.fencing_token IS DISTINCT FROM token OR job.lease_id IS DISTINCT FROM lease"
    " THEN 'token_mismatch'"
)
FENCE_MUTANTS = (
    sql_mutant(
        "token_predicate_dropped",
        "the fence compares only the lease id",
        MISMATCHED,
        (_FENCE, "WHEN job.lease_id IS DISTINCT FROM lease THEN 'token_mismatch'"),
    ),
    sql_mutant(
        "lease_id_predicate_dropped",
        "the fence compares only the token",
        MISMATCHED,
        (_FENCE, "WHEN job.fencing_token IS DISTINCT FROM token THEN 'token_mismatch'"),
    ),
    sql_mutant(
        "any_older_token_accepted",
        "older tokens pass: = became >=",
        MISMATCHED,
        (
            "job.fencing_token IS DISTINCT FROM token OR job.lease_id",
            "NOT job.fencing_token >= token OR job.lease_id",
        ),
    ),
    sql_mutant(
        "token_and_lease_id_dropped",
        "any worker that ever held the job may commit",
        EXPLORER,
        (_FENCE, "WHEN false THEN ''"),
    ),
    sql_mutant(
        "running_not_required",
        "a released job can still be committed",
        MISMATCHED,
        ("WHEN job.state <> 'running' THEN 'not_running'", "WHEN false THEN ''"),
    ),
    sql_mutant(
        "clock_frozen_at_transaction_start",
        "the expiry is compared with now(), which is fixed for a transaction",
        drill("slow_transaction"),
        (
            "WHEN job.lease_expires_at <= clock_timestamp() THEN 'lease_expired'",
            "WHEN job.lease_expires_at <= now() THEN 'lease_expired'",
        ),
    ),
    sql_mutant(
        "lease_valid_at_its_expiry",
        "a lease is valid at its very expiry: <= became <",
        drill("commit_at_lease_expiry"),
        (
            "WHEN job.lease_expires_at <= clock_timestamp() THEN",
            "WHEN job.lease_expires_at < clock_timestamp() THEN",
        ),
    ),
    sql_mutant(
        "expiry_ignored",
        "the fence does not check the expiry",
        MISMATCHED,
        ("WHEN job.lease_expires_at <= clock_timestamp() THEN 'lease_expired'\n", ""),
    ),
    sql_mutant(
        "batch_not_fenced",
        "an entry that claims to be part of a batch is not checked",
        MISMATCHED,
        ("    IF committed <> cardinality(job_ids) THEN\n", "    IF false THEN\n"),
    ),
    sql_mutant(
        "insert_without_entry_accepted",
        "an insert that adds no ledger entry counts as a commit",
        MISMATCHED,
        ("    IF entered = 0 THEN\n", "    IF false THEN\n"),
    ),
    sql_mutant(
        "dropped_rows_accepted",
        "a statement whose rows were partly dropped counts as a commit of all",
        MISMATCHED,
        ("        IF offered::bigint <> entered THEN", "        IF false THEN"),
    ),
    Mutant(
        "ledger_keyed_by_the_pair",
        "UNIQUE (job_id) became UNIQUE (job_id, fencing_token)",
        drill("one_guard_disabled"),
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
        "ledger_trigger_disabled",
        "the fence's trigger exists but is disabled",
        drill("stale_takeover"),
        (
            Edit(
                GUARDS,
                "CREATE OR REPLACE TRIGGER guard_truncate",
                "ALTER TABLE faultline.ledger DISABLE TRIGGER enter_ledger;\n"
                "CREATE OR REPLACE TRIGGER guard_truncate",
            ),
        ),
        blocks_the_drill=True,  # workers do not start without the fence
    ),
)
