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

_HALF_WAY = drill("handler_ends_its_transaction")

TRANSACTION_MUTANTS = (
    sql_mutant(
        "commit_half_way",
        "a job's transaction commits without its entry in the ledger",
        _HALF_WAY,
        (
            "        IF NOT FOUND THEN\n            PERFORM",
            "        IF false THEN\n            PERFORM",
        ),
        path=HANDLER_TRANSACTIONS,
    ),
    sql_mutant(
        "step_half_way",
        "a step commits before its block has ended",
        _HALF_WAY,
        (
            "ELSIF current_setting('faultline.closed', true) IS DISTINCT FROM",
            "ELSIF false AND current_setting('faultline.closed', true) IS DISTINCT FROM",
        ),
        path=HANDLER_TRANSACTIONS,
    ),
    sql_mutant(
        "entry_without_its_opening",
        "a block's entry is made although its transaction was rolled back",
        _HALF_WAY,
        (
            "IF opened = faultline.transaction_mark(close_transaction.lease_id, true) THEN",
            "IF true THEN",
        ),
        path=HANDLER_TRANSACTIONS,
    ),
    sql_mutant(
        "opened_in_a_savepoint",
        "the check vanishes together with the savepoint that it was queued in",
        _HALF_WAY,
        (
            "    IF writer <> pg_current_xact_id()::xid THEN\n"
            "        PERFORM faultline.refuse_half_way('was opened",
            "    IF false THEN\n        PERFORM faultline.refuse_half_way('was opened",
        ),
        path=HANDLER_TRANSACTIONS,
    ),
    sql_mutant(
        "unlocked_entry_in_a_savepoint",
        "above READ COMMITTED a refusal in a savepoint can be rolled back",
        _HALF_WAY,
        (
            "    IF writer <> pg_current_xact_id()::xid THEN\n"
            "        PERFORM faultline.refuse_half_way('enters",
            "    IF false THEN\n        PERFORM faultline.refuse_half_way('enters",
        ),
        path=HANDLER_TRANSACTIONS,
    ),
    sql_mutant(
        "entry_in_a_savepoint",
        "rolling back to a savepoint takes the entry and keeps the effect",
        _HALF_WAY,
        ("IF writer <> pg_current_xact_id()::xid\n", "IF false\n"),
    ),
    sql_mutant(
        "batch_in_a_savepoint",
        "the same for a batch",
        _HALF_WAY,
        ("AND j.xmin <> pg_current_xact_id()::xid;", "AND false;"),
    ),
    Mutant(
        "check_in_time_for_nothing",
        "the check of the COMMIT is in place and switched off",
        _HALF_WAY,
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
        blocks_the_drill=True,  # no worker starts where the fence is down
    ),
    Mutant(
        "lost_transaction_swallowed",
        "a handler that swallows the loss of its transaction has succeeded",
        _HALF_WAY,
        (
            Edit(
                EXECUTION,
                "        if error is None and lost is not None and isinstance(ending, Returned):\n",
                "        if False and isinstance(ending, Returned):\n",
            ),
        ),
    ),
    Mutant(
        "handlers_write_outside_of_blocks",
        "after a ROLLBACK by hand the session writes on by itself",
        _HALF_WAY,
        (
            Edit(
                SESSION_SETTINGS,
                '    "default_transaction_read_only": "on",\n',
                '    "default_transaction_read_only": "off",\n',
            ),
        ),
    ),
)
