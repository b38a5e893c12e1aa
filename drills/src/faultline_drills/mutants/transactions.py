"""Bugs in the check of a job's transaction at its COMMIT."""

from __future__ import annotations

from faultline_drills.mutants.mutant import (
    EXECUTION,
    HANDLER_TRANSACTIONS,
    SESSION_SETTINGS,
    Edit,
    Mutant,
    drill,
    sql_mutant,
)

_OWN_COMMIT = drill("handler_ends_its_transaction")

TRANSACTION_MUTANTS = (
    sql_mutant(
        "commit_without_ledger_entry",
        "a job's transaction commits without its ledger entry",
        _OWN_COMMIT,
        (
            "        IF NOT FOUND OR (NEW.batch_id",
            "        IF false AND (NEW.batch_id",
        ),
        path=HANDLER_TRANSACTIONS,
    ),
    sql_mutant(
        "step_committed_in_its_block",
        "a fenced step commits before its block has ended",
        _OWN_COMMIT,
        (
            "ELSIF current_setting('faultline.closed', true)\n",
            "ELSIF false AND current_setting('faultline.closed', true)\n",
        ),
        path=HANDLER_TRANSACTIONS,
    ),
    sql_mutant(
        "entry_after_rollback",
        "a block writes its ledger entry although its transaction was rolled back",
        _OWN_COMMIT,
        (
            "IF opened = faultline.transaction_mark(close_transaction.lease_id, true) THEN",
            "IF true THEN",
        ),
        path=HANDLER_TRANSACTIONS,
    ),
    sql_mutant(
        "transaction_opened_in_a_savepoint",
        "rolling back to a savepoint removes the check at COMMIT",
        _OWN_COMMIT,
        (
            "INTO row_tid, writer;\n    IF writer <> pg_current_xact_id()::xid THEN",
            "INTO row_tid, writer;\n    IF false THEN",
        ),
        path=HANDLER_TRANSACTIONS,
    ),
    sql_mutant(
        "unlocked_entry_in_a_savepoint",
        "above READ COMMITTED a refusal in a savepoint can be rolled back",
        _OWN_COMMIT,
        (
            "RETURNING xmin INTO writer;\n    IF writer <> pg_current_xact_id()::xid THEN",
            "RETURNING xmin INTO writer;\n    IF false THEN",
        ),
        path=HANDLER_TRANSACTIONS,
    ),
    sql_mutant(
        "entry_in_a_savepoint",
        "rolling back to a savepoint removes the ledger entry and keeps the effect",
        _OWN_COMMIT,
        ("IF writer <> pg_current_xact_id()::xid\n", "IF false\n"),
    ),
    sql_mutant(
        "batch_in_a_savepoint",
        "the same for a batch",
        _OWN_COMMIT,
        ("AND j.xmin <> pg_current_xact_id()::xid;", "AND false;"),
    ),
    Mutant(
        "commit_check_disabled",
        "the trigger that checks a COMMIT exists but is disabled",
        _OWN_COMMIT,
        (
            Edit(
                HANDLER_TRANSACTIONS,
                "        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION"
                " faultline.refuse_unfinished();\n",
                "        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION"
                " faultline.refuse_unfinished();\n"
                "        ALTER TABLE faultline.open_transactions DISABLE TRIGGER refuse_unfinished;\n",
            ),
        ),
        blocks_the_drill=True,  # workers do not start without the fence
    ),
    Mutant(
        "lost_transaction_counts_as_success",
        "a handler that ignores the loss of its transaction succeeds",
        _OWN_COMMIT,
        (
            Edit(
                EXECUTION,
                "        if error is None and lost is not None and isinstance(ending, Returned):\n",
                "        if False and isinstance(ending, Returned):\n",
            ),
        ),
    ),
    Mutant(
        "writes_after_a_manual_rollback",
        "after a handler's own ROLLBACK the session can write in autocommit",
        _OWN_COMMIT,
        (
            Edit(
                SESSION_SETTINGS,
                '    "default_transaction_read_only": "on",\n',
                '    "default_transaction_read_only": "off",\n',
            ),
        ),
    ),
)
