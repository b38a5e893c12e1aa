"""The database goes down during commits and enqueues, and is started again.

One COMMIT has been executed and its reply lost, another is held in the network, other jobs are
running, and a producer is submitting. Everything that was acknowledged must exist afterwards;
everything else exists completely or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from faultline_drills.clients.producer import Producer
from faultline_drills.context import DrillContext
from faultline_drills.proxy import Action, Match, proxy_to
from faultline_drills.proxy.matchers import is_commit
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay

_SHOWN = ("restarts", "outages", "unknown_commits", "commits")


@scenario(shows=_SHOWN, own_server=True)
def database_restart_fast(drill: DrillContext) -> None:
    """An operator restarts the database: sessions end with 57P01.

    One COMMIT was executed and its reply lost, another one was held in the network, jobs were
    running and a producer was submitting. Nothing acknowledged may be lost; everything else exists
    completely or not at all.
    """
    _restart(drill, "fast", lambda: drill.server.shut_down(mode="fast"))


@scenario(shows=_SHOWN, own_server=True)
def database_restart_immediate(drill: DrillContext) -> None:
    """The database stops without a checkpoint, and recovers from its WAL.

    Sessions end without an error message, as in a crash of the server. A commit that was just
    acknowledged is only in the WAL: recovery must restore it with both its ledger entry and its
    effect.
    """
    _restart(drill, "immediate", lambda: drill.server.shut_down(mode="immediate"))


@scenario(shows=_SHOWN, own_server=True)
def postmaster_killed(drill: DrillContext) -> None:
    """The postmaster is killed with SIGKILL, as by the kernel's OOM killer.

    Its backends notice it and end one by one, and a new server must wait for the last of them. For
    a while some sessions still work and no new one can be opened. Nothing acknowledged may be lost.
    """
    _restart(drill, "SIGKILL", drill.server.kill)


def _restart(drill: DrillContext, how: str, shut_down: Callable[[], None]) -> None:
    before, during = _halves(drill.settings.jobs)
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    reply_lost = proxy.on(Match(where=is_commit), Action.DROP_REPLY)
    in_transit = proxy.on(Match(where=is_commit), Action.HOLD)
    for number in range(before):
        drill.submit(pay, number=number, parts=3)
    for _ in range(drill.settings.workers):
        drill.worker(url=proxy.url)
    held = (reply_lost, in_transit)
    drill.wait_until(lambda: all(each.is_done for each in held), "each COMMIT")
    # Wait for a commit that succeeded: the reply to a late commit is a refusal.
    drill.wait_for_row("SELECT FROM faultline.ledger LIMIT 1", [], "a commit")
    acknowledged = drill.count("SELECT count(*) FROM faultline.ledger")

    producer = Producer("producer", drill.url, drill.history)
    drill.stack.callback(producer.close)
    thread = drill.stack.enter_context(ThreadPoolExecutor(1))
    shut_down()
    drill.inject("restart", "postgres", how=how)
    submitting = thread.submit(_submit, producer, range(before, before + during))
    drill.wait_until(lambda: producer.unanswered > 0, "a submission without an answer")
    drill.server.start()
    kept = drill.count("SELECT count(*) FROM faultline.ledger")
    drill.expect(
        kept >= acknowledged,
        f"{acknowledged} commits were acknowledged before the restart; {kept} existed after it",
    )
    proxy.clear_faults()
    proxy.reset_all()  # ends the waits for replies of the old server
    submitting.result(drill.settings.timeout_seconds)
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")


def _submit(producer: Producer, numbers: range) -> None:
    for number in numbers:
        producer.submit(pay, key=f"payment {number}", number=number, parts=3)


def _halves(jobs: int) -> tuple[int, int]:
    """The numbers of jobs before and during the restart; each COMMIT needs one before."""
    before = max(2, jobs // 2)
    return before, max(1, jobs - before)
