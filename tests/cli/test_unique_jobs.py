"""Unique jobs on the command line: enqueue, show, why, retry, purge and verify."""

from __future__ import annotations

from .conftest import Connection, Faultline

SYNC = ("enqueue", "sync", '{"customer": 7}', "--unique-by", "customer")


def test_a_second_enqueue_prints_what_it_did(faultline: Faultline) -> None:
    first = faultline(*SYNC).out.strip()
    assert faultline(*SYNC).out == f"{first} (kept)\n"
    assert faultline(*SYNC, "--on-conflict", "replace", "--json").json == {
        "job_id": first,
        "existing": True,
        "outcome": "replaced",
    }
    everything = faultline(*SYNC[:-1], "*", "--unique-while", "queued", "--unique-for", "60")
    assert everything.out == f"{first} (kept)\n"  # its only argument is the customer


def test_options_without_a_key_are_refused(faultline: Faultline) -> None:
    faultline("enqueue", "sync", "--on-conflict", "keep").refused("invalid_input")
    faultline(*SYNC[:-1], "custmer").refused("invalid_input")


def test_show_and_why_tell_the_key_and_its_holder(faultline: Faultline, conn: Connection) -> None:
    first = faultline(*SYNC, "--delay", "60").out.strip()
    again = (*SYNC, "--on-conflict", "reschedule", "--delay", "90")
    assert faultline(*again).out == f"{first} (rescheduled)\n"
    shown = faultline("jobs", "show", first)
    assert 'unique_key       sync {"customer": 7}' in shown.out
    assert 'enqueued, unique by sync {"customer": 7}' in shown.out
    assert "rescheduled by 1 later enqueue of its unique key" in shown.out
    assert 'unique key            sync {"customer": 7}' in faultline("why", first).out

    faultline("jobs", "cancel", first)
    second = faultline(*SYNC).out.strip()
    why = faultline("why", first, "--json").json
    assert why["facts"]["unique_key_is_held_by"] == second
    assert why["facts"]["counts_for_its_key"] is False
    assert why["advice"][1] == (f"it cannot run again while job {second} counts for its unique key")
    refused = faultline("jobs", "retry", first)
    assert (refused.code, "[unique_key_held]" in refused.out) == (1, True)


def test_the_timeline_keeps_a_replaced_payload(faultline: Faultline) -> None:
    first = faultline(*SYNC).out.strip()
    faultline(
        "enqueue", "sync", '{"customer": 7, "note": "b"}', *SYNC[3:], "--on-conflict", "replace"
    )
    timeline = faultline("jobs", "show", first, "--json").json["timeline"]
    [replaced] = [event for event in timeline if event["kind"] == "replaced"]
    assert replaced["text"].endswith('it was {"customer": 7}')


def test_purge_removes_keys_that_no_job_holds(faultline: Faultline, conn: Connection) -> None:
    cancelled = faultline(*SYNC).out.strip()
    faultline("jobs", "cancel", cancelled)
    held = faultline("enqueue", "sync", '{"customer": 8}', *SYNC[3:]).out.strip()
    assert faultline("purge", "--dry-run", "--json").json["unique_keys"] == 1
    assert faultline("purge", "--json").json["unique_keys"] == 1
    left = conn.execute("SELECT job_id::text FROM faultline.unique_keys").fetchall()
    assert left == [(held,)]
    faultline("verify")
