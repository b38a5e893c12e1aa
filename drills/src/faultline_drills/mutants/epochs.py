"""Bugs in the epoch: after a failover or restore, tokens are issued again."""

from __future__ import annotations

from faultline_drills.mutants.mutant import PROTOCOL, drill, sql_mutant

_EPOCH = "sql/epoch.sql"

EPOCH_MUTANTS = (
    sql_mutant(
        "epoch_not_in_the_token",
        "a promoted standby continues with the tokens it knows",
        drill("two_standbys_promoted"),
        ("greatest(j.fencing_token, epoch) + 1,", "j.fencing_token + 1,"),
        path=PROTOCOL,
    ),
    sql_mutant(
        "epochs_numbered_by_history",
        "two standbys promoted from one primary start epochs with the same number",
        drill("two_standbys_promoted"),
        ("floor(extract(epoch FROM clock_timestamp() - '2025-01-01 00:00+00'))::bigint", "0"),
        path=_EPOCH,
    ),
    sql_mutant(
        "other_server_not_detected",
        "workers claim from a restored dump without a new epoch",
        drill("restored_dump"),
        ("    IF known.system_identifier <> here.system_identifier THEN\n", "    IF false THEN\n"),
        path=_EPOCH,
    ),
    sql_mutant(
        "copied_database_not_detected",
        "a copied database issues the same tokens as its original",
        drill("copied_database"),
        ("    ELSIF known.database_oid <> here.database_oid THEN\n", "    ELSIF false THEN\n"),
        path=_EPOCH,
    ),
    sql_mutant(
        "copy_on_running_server_not_detected",
        "the database is checked only after a restart of its server",
        drill("copied_database"),
        (
            "\n       AND (known.database_oid = split_part("
            "pg_relation_filepath('faultline.epochs'), '/', -2)::oid) IS NOT FALSE THEN",
            " THEN",
        ),
        path=_EPOCH,
    ),
    sql_mutant(
        "base_backup_not_detected",
        "a base backup started in place of its server is taken for a restart",
        drill("restored_base_backup"),
        ("OR known.restored_from < here.restored_from) IS NOT TRUE", "OR false) IS NOT TRUE"),
        path=_EPOCH,
    ),
)
