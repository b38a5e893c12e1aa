"""Bugs in the limits that a client with nothing but SQL must not pass."""

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
        "lease_cap_compares_intervals",
        "the limit on a lease is compared with the interval, not with the moment it leads to",
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
        "retention_floor_compares_intervals",
        "the hour that everything is kept for is compared with the interval",
        _LIMITS,
        (
            "oldest > moment - interval '3600 seconds'\n"
            "       OR (oldest IS NULL AND kept < interval '1 hour') THEN",
            "kept < interval '1 hour' THEN",
        ),
        path=RETENTION,
    ),
    sql_mutant(
        "commit_poses_as_a_batch",
        "a commit under a faultline.batch that was set by hand is not signed",
        _LIMITS,
        (
            "    IF current_setting('faultline.batch', true) = 'on' THEN -- set by hand",
            "    IF false THEN -- set by hand",
        ),
    ),
    sql_mutant(
        "keys_with_any_scope",
        "an account gives a key a scope that it does not have itself",
        _LIMITS,
        ("    IF lacking IS NOT NULL THEN\n", "    IF false THEN\n"),
        path=OPERATING,
    ),
)
