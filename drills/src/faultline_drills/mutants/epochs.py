"""Bugs in the epoch: a server that took the place of another gives out tokens that were seen before."""

from __future__ import annotations

from faultline_drills.mutants.mutant import PROTOCOL, drill, sql_mutant

_EPOCH = "sql/epoch.sql"

EPOCH_MUTANTS = (
    sql_mutant(
        "epoch_not_in_the_token",
        "a promoted standby counts on from what it knows of",
        drill("two_standbys_promoted"),
        ("greatest(j.fencing_token, epoch) + 1,", "j.fencing_token + 1,"),
        path=PROTOCOL,
    ),
    sql_mutant(
        "epochs_are_numbered",
        "two standbys that are promoted from one history call the next one by the same number",
        drill("two_standbys_promoted"),
        ("floor(extract(epoch FROM clock_timestamp() - '2025-01-01 00:00+00'))::bigint", "0"),
        path=_EPOCH,
    ),
    sql_mutant(
        "another_server_goes_unnoticed",
        "a restored dump is claimed from as if nothing had happened",
        drill("restored_dump"),
        ("    IF known.system_identifier <> here.system_identifier THEN\n", "    IF false THEN\n"),
        path=_EPOCH,
    ),
    sql_mutant(
        "copied_database_goes_unnoticed",
        "a copy beside its original is claimed from, and gives out the same tokens",
        drill("copied_database"),
        ("    ELSIF known.database_oid <> here.database_oid THEN\n", "    ELSIF false THEN\n"),
        path=_EPOCH,
    ),
    sql_mutant(
        "copy_on_a_running_server_goes_unnoticed",
        "the database is looked at only when its server was started again",
        drill("copied_database"),
        (
            "\n       AND (known.database_oid = split_part("
            "pg_relation_filepath('faultline.epochs'), '/', -2)::oid) IS NOT FALSE THEN",
            " THEN",
        ),
        path=_EPOCH,
    ),
    sql_mutant(
        "base_backup_goes_unnoticed",
        "a base backup that is started in its server's place is taken for a restart",
        drill("restored_base_backup"),
        ("OR known.restored_from < here.restored_from) IS NOT TRUE", "OR false) IS NOT TRUE"),
        path=_EPOCH,
    ),
)
