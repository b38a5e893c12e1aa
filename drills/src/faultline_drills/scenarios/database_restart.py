"""The database goes away in the middle of everything, and comes back.

At that moment one COMMIT has been carried out and its answer lost, another has been sent and has not
arrived, other jobs are under way, and a producer is submitting. What the server acknowledged must be
there afterwards; what it did not must turn out to be there whole or not at all.
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
    """An operator restarts the database: sessions are ended (57P01), data is written, it comes back.

    One COMMIT was carried out and its answer lost, another one was on its way, jobs were running and a
    producer was submitting. Nothing acknowledged is lost, and what was not acknowledged resolves to one
    of two: there whole, or not at all.
    """
    _restart(drill, "fast", lambda: drill.server.shut_down(mode="fast"))


@scenario(shows=_SHOWN, own_server=True)
def database_restart_immediate(drill: DrillContext) -> None:
    """The database is stopped without a checkpoint, and recovers from its write-ahead log.

    Sessions end without a word, as in a crash of the server. A commit that was acknowledged a moment
    ago is in the log and nowhere else: recovery has to bring it back, with its ledger entry and its
    effect or with neither.
    """
    _restart(drill, "immediate", lambda: drill.server.shut_down(mode="immediate"))


@scenario(shows=_SHOWN, own_server=True)
def postmaster_killed(drill: DrillContext) -> None:
    """The database's main process is killed with SIGKILL, as the kernel does when memory runs out.

    Its backends find themselves orphans and end one by one, and a new server has to wait for the last
    of them. For a while some sessions still work and no new one can be opened.
    """
    _restart(drill, "SIGKILL", drill.server.kill)


def _restart(drill: DrillContext, how: str, take_down: Callable[[], None]) -> None:
    before, during = _halves(drill.settings.jobs)
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    answer_lost = proxy.on(Match(where=is_commit), Action.DROP_REPLY)
    on_its_way = proxy.on(Match(where=is_commit), Action.HOLD)
    for number in range(before):
        drill.submit(pay, number=number, parts=3)
    for _ in range(drill.settings.workers):
        drill.worker(url=proxy.url)
    held = (answer_lost, on_its_way)
    drill.wait_until(lambda: all(each.is_done for each in held), "each COMMIT")
    # A commit that was held up until its lease had run out is answered too, with a refusal.
    drill.wait_for_row("SELECT FROM faultline.ledger LIMIT 1", [], "a commit that stands")
    acknowledged = drill.count("SELECT count(*) FROM faultline.ledger")

    producer = Producer("producer", drill.url, drill.history)
    drill.stack.callback(producer.close)
    thread = drill.stack.enter_context(ThreadPoolExecutor(1))
    take_down()
    drill.inject("restart", "postgres", how=how)
    submitting = thread.submit(_submit, producer, range(before, before + during))
    drill.wait_until(lambda: producer.unanswered > 0, "a submission without an answer")
    drill.server.start()
    kept = drill.count("SELECT count(*) FROM faultline.ledger")
    drill.expect(
        kept >= acknowledged,
        f"{acknowledged} commits were acknowledged before the restart, and {kept} were there after it",
    )
    proxy.clear_faults()
    proxy.reset_all()  # whoever waits for an answer of the server that is gone is told so
    submitting.result(drill.settings.timeout_seconds)
    drill.wait_until(lambda: drill.unfinished() == 0, "the end of all jobs")


def _submit(producer: Producer, numbers: range) -> None:
    for number in numbers:
        producer.submit(pay, key=f"payment {number}", number=number, parts=3)


def _halves(jobs: int) -> tuple[int, int]:
    """Two jobs at least are under way: one for each COMMIT that is interfered with."""
    before = max(2, jobs // 2)
    return before, max(1, jobs - before)
