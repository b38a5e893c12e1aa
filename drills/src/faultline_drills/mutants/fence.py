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
        "the fence compares the lease alone",
        MISMATCHED,
        (_FENCE, "WHEN job.lease_id IS DISTINCT FROM lease THEN 'token_mismatch'"),
    ),
    sql_mutant(
        "nonce_dropped",
        "the fence compares the token alone",
        MISMATCHED,
        (_FENCE, "WHEN job.fencing_token IS DISTINCT FROM token THEN 'token_mismatch'"),
    ),
    sql_mutant(
        "any_older_token_accepted",
        "= became >= on the token",
        MISMATCHED,
        (
            "job.fencing_token IS DISTINCT FROM token OR job.lease_id",
            "NOT job.fencing_token >= token OR job.lease_id",
        ),
    ),
    sql_mutant(
        "token_and_nonce_dropped",
        "any worker that ever had the job may write",
        EXPLORER,
        (_FENCE, "WHEN false THEN ''"),
    ),
    sql_mutant(
        "running_not_required",
        "a job that was given back can still be committed",
        MISMATCHED,
        ("WHEN job.state <> 'running' THEN 'not_running'", "WHEN false THEN ''"),
    ),
    sql_mutant(
        "frozen_clock",
        "now() stands still while the transaction runs",
        drill("slow_transaction"),
        (
            "WHEN job.lease_expires_at <= clock_timestamp() THEN 'lease_expired'",
            "WHEN job.lease_expires_at <= now() THEN 'lease_expired'",
        ),
    ),
    sql_mutant(
        "lease_holds_at_its_end",
        "<= became < at expiry",
        drill("commit_at_lease_expiry"),
        (
            "WHEN job.lease_expires_at <= clock_timestamp() THEN",
            "WHEN job.lease_expires_at < clock_timestamp() THEN",
        ),
    ),
    sql_mutant(
        "expiry_ignored",
        "the fence does not look at the clock",
        MISMATCHED,
        ("WHEN job.lease_expires_at <= clock_timestamp() THEN 'lease_expired'\n", ""),
    ),
    sql_mutant(
        "batch_not_fenced",
        "an entry that calls itself part of a batch is believed",
        MISMATCHED,
        ("        IF committed <> entered THEN\n", "        IF false THEN\n"),
    ),
    sql_mutant(
        "loser_hidden",
        "an insert that enters nothing passes for a commit",
        MISMATCHED,
        ("    IF entered = 0 THEN\n", "    IF false THEN\n"),
    ),
    sql_mutant(
        "dropped_rows_hidden",
        "a statement of which some rows were dropped passes for a commit of all",
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
        blocks_the_drill=True,  # no worker starts where the fence is down
    ),
)
