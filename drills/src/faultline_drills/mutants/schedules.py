"""Bugs in the firing of schedules: a planned time has two jobs, or none."""

from __future__ import annotations

from importlib import resources

from faultline_drills.mutants.mutant import SEED, Edit, Layer, Mutant, drill

_SCHEDULES = "sql/schedules.sql"
_SCHEDULER = "reconciler/scheduler.py"
_DUE = "statements/firing.py"
# The last one has the takeovers and refusals without which a run shows nothing.
_PROGRAMS = ("schedule-race", "schedule-crash", "schedule-change", "schedule-run-now", "takeover")
EXPLORER_OF_SCHEDULES = Layer(
    "explorer of schedules",
    (
        *("explore", "--seed", str(SEED), "--interleavings", "100"),
        *[word for name in _PROGRAMS for word in ("--program", name)],
    ),
)
_DOWNTIME = drill("schedule_downtime")
# The number of a migration changes while it is not released.
_MIGRATION = next(
    f"sql/migrations/{entry.name}"
    for entry in resources.files("faultline.sql").joinpath("migrations").iterdir()
    if entry.name.endswith("_schedules.sql")
)
_ADVANCE_NOTHING = (
    "    UPDATE faultline.schedules AS s SET decided_until = s.decided_until WHERE s.name = schedule.name;\n"
    "    RETURN NEXT;\n"
    "    RETURN;\n"
)
_ADVANCE = (
    "    UPDATE faultline.schedules AS s\n"
    "    SET next_fire_at = new_next_fire_at, decided_until = newest,"
)

SCHEDULE_MUTANTS = (
    Mutant(
        "schedule_advanced_in_another_transaction",
        "the scheduler advances a schedule after the transaction that fired it",
        _DOWNTIME,
        (
            Edit(
                _SCHEDULES,
                _ADVANCE,
                f"{_ADVANCE_NOTHING}{_ADVANCE}",
            ),
            Edit(
                _SCHEDULER,
                "        if fired is not None:\n",
                "        conn = await self._session.connection()\n"
                "        newest = max([*decision.planned, decision.newest_skipped or decision.planned[0]])\n"
                "        await conn.execute(\n"
                '            "UPDATE faultline.schedules SET next_fire_at = %s, decided_until = %s,"\n'
                '            " last_planned_at = greatest(last_planned_at, %s) WHERE name = %s",\n'
                "            [decision.next_fire_at, newest, newest, schedule.name],\n"
                "        )\n"
                "        if fired is not None:\n",
            ),
        ),
    ),
    Mutant(
        "schedule_fires_without_comparison_and_keys",
        "a scheduler fires what it read, without comparing next_fire_at, and without the keys",
        _DOWNTIME,
        (
            Edit(
                _SCHEDULES,
                "       AND schedule.next_fire_at IS NOT DISTINCT FROM expected_next_fire_at THEN\n",
                "    THEN\n",
            ),
            Edit(
                _SCHEDULES,
                "    WHERE NOT EXISTS (SELECT FROM faultline.schedule_firings AS f"
                " WHERE f.schedule = schedule.name AND f.planned_at = t);\n",
                "    ;\n",
            ),
            Edit(
                _SCHEDULES, "        SELECT 'schedule:' || ", "        SELECT gen_random_uuid() || "
            ),
            Edit(_MIGRATION, "    PRIMARY KEY (schedule, planned_at),\n", ""),
        ),
    ),
    Mutant(
        "schedule_fires_while_paused",
        "the pause of a schedule does not keep schedulers from firing it",
        _DOWNTIME,
        (
            Edit(
                _SCHEDULES,
                "AND schedule.paused_at IS NULL\n       AND schedule.next_fire_at IS NOT",
                "\n       AND schedule.next_fire_at IS NOT",
            ),
            Edit(
                _DUE,
                "WHERE s.paused_at IS NULL AND s.name <> ALL (%s::text[])",
                "WHERE s.name <> ALL (%s::text[])",
            ),
        ),
    ),
    Mutant(
        "schedule_row_not_locked",
        "two schedulers compare and fire at once, and only the key of the firing stops the second",
        EXPLORER_OF_SCHEDULES,
        (
            Edit(
                _SCHEDULES,
                "WHERE s.name = lock_schedule.name FOR UPDATE SKIP LOCKED;",
                "WHERE s.name = lock_schedule.name;",
            ),
        ),
    ),
    Mutant(
        "changed_schedule_fires_former_times",
        "a firing that was decided before a change of the schedule is carried out after it",
        EXPLORER_OF_SCHEDULES,
        (
            Edit(
                _SCHEDULES,
                "    IF schedule.revision = lock_schedule.revision AND schedule.paused_at",
                "    IF schedule.paused_at",
            ),
            Edit(
                _SCHEDULES,
                "       AND schedule.next_fire_at IS NOT DISTINCT FROM expected_next_fire_at THEN\n",
                "    THEN\n",
            ),
        ),
    ),
)
