"""Bugs in the limits that also hold for clients with plain SQL."""

from __future__ import annotations

from faultline_drills.mutants.mutant import (
    INTERVALS,
    OPERATING,
    RETENTION,
    drill,
    sql_mutant,
)

_LIMITS = drill("limit_evasion")

LIMIT_MUTANTS = (
    sql_mutant(
        "lease_limit_compares_intervals",
        "the limit on a lease compares intervals, not the resulting times",
        _LIMITS,
        (
            "    IF (seconds > 0 AND seconds <= 604800) IS NOT TRUE THEN\n",
            "    IF (lease > '0' AND lease <= '7 days') IS NOT TRUE THEN\n",
        ),
        (
            "    RETURN make_interval(secs => seconds);\n",
            "    RETURN lease;\n",
        ),
        path=INTERVALS,
    ),
    sql_mutant(
        "retention_minimum_compares_intervals",
        "the minimum retention of an hour compares intervals, not times",
        _LIMITS,
        (
            "oldest > moment - interval '3600 seconds'\n"
            "       OR (oldest IS NULL AND kept < interval '1 hour') THEN",
            "kept < interval '1 hour' THEN",
        ),
        path=RETENTION,
    ),
    sql_mutant(
        "batch_setting_accepted_from_clients",
        "the commit of a client that set faultline.batch is not signed by its account",
        _LIMITS,
        (
            "        idling := set_config('faultline.batch', '', true);\n",
            "        NULL;\n",
        ),
    ),
    sql_mutant(
        "key_scopes_not_limited",
        "an account grants a key a scope that it does not have itself",
        _LIMITS,
        ("    IF missing_scope IS NOT NULL THEN\n", "    IF false THEN\n"),
        path=OPERATING,
    ),
)
