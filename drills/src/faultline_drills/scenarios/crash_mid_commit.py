"""Workers are killed around their COMMIT: before it is out, before its answer, and in between.

A network in between stops at the very message. Killed before it, the job has not taken effect, and is
run again. Killed after it, the job has taken effect although nobody was ever told so: whoever looks
next finds it finished. In neither case is there a moment at which one half of it is true.
"""

from __future__ import annotations

from concurrent.futures import Future

from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.proxy import Action, Match, Message, Proxy, proxy_to
from faultline_drills.proxy.matchers import is_commit
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay, pay_by_hand

# Lost with its sender; carried out, and the answer lost; read by nobody knows whom; arriving late.
SPOTS = (Action.DROP, Action.DROP_REPLY, Action.FORWARD, Action.HOLD)


@scenario(shows=("kills", "lost_answers", "takeovers", "commits"))
def crash_mid_commit(drill: DrillContext) -> None:
    jobs = drill.settings.jobs
    for number in range(jobs):
        drill.submit((pay, pay_by_hand)[number % 2], number=number, parts=2)
    rounds = max(2, round(jobs * drill.settings.fault_rate))
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    for number in range(min(rounds, jobs)):
        _strike(drill, proxy, SPOTS[number % len(SPOTS)])


def _strike(drill: DrillContext, proxy: Proxy, spot: Action) -> None:
    """Start a worker, and kill it at its first COMMIT."""
    hired: Future[ObservedProcess] = Future()

    def kill(message: Message) -> None:
        worker = hired.result(drill.settings.timeout_seconds)
        drill.inject("kill", worker.name, at=str(spot))
        worker.kill()

    interception = proxy.on(
        Match(where=is_commit), spot, kill
    )  # before there is anybody who could commit
    worker = drill.worker("--concurrency", "1", url=proxy.url)
    hired.set_result(worker)
    sprung = interception.wait(drill.settings.timeout_seconds)
    drill.expect(sprung is not None, f"a COMMIT came by to {spot}")
    proxy.remove(interception)
    if sprung and spot is Action.DROP_REPLY:  # the server had answered, and nobody heard it
        drill.inject("lost_answer", worker.name)
