"""Workers are killed right before, during and right after their COMMIT.

The proxy stops at the COMMIT message. Killed before it, the job has not taken effect and must run
again. Killed after it, the job has taken effect although its worker never learned it, and must not
run again. There is never half of an effect.
"""

from __future__ import annotations

from concurrent.futures import Future

from faultline_drills.context import DrillContext
from faultline_drills.processes.observed_process import ObservedProcess
from faultline_drills.proxy import Action, Match, Message, Proxy, proxy_to
from faultline_drills.proxy.matchers import is_commit
from faultline_drills.scenario import scenario
from faultline_drills.workload.tasks import pay, pay_by_hand

# Lost; executed, and the reply lost; forwarded, perhaps not read; delivered late.
ACTIONS = (Action.DROP, Action.DROP_REPLY, Action.FORWARD, Action.HOLD)


@scenario(shows=("kills", "lost_answers", "takeovers", "commits"))
def crash_mid_commit(drill: DrillContext) -> None:
    jobs = drill.settings.jobs
    for number in range(jobs):
        drill.submit((pay, pay_by_hand)[number % 2], number=number, parts=2)
    rounds = max(2, round(jobs * drill.settings.fault_rate))
    proxy = drill.stack.enter_context(proxy_to(drill.url))
    for number in range(min(rounds, jobs)):
        _kill_at_commit(drill, proxy, ACTIONS[number % len(ACTIONS)])


def _kill_at_commit(drill: DrillContext, proxy: Proxy, action: Action) -> None:
    """Start a worker, and kill it at its first COMMIT."""
    started: Future[ObservedProcess] = Future()

    def kill(message: Message) -> None:
        worker = started.result(drill.settings.timeout_seconds)
        drill.inject("kill", worker.name, at=str(action))
        worker.kill()

    interception = proxy.on(Match(where=is_commit), action, kill)  # before the first worker starts
    worker = drill.worker("--concurrency", "1", url=proxy.url)
    started.set_result(worker)
    message = interception.wait(drill.settings.timeout_seconds)
    drill.expect(message is not None, f"no COMMIT was sent, for {action}")
    proxy.remove(interception)
    if message and action is Action.DROP_REPLY:  # the server replied to a dead worker
        drill.inject("lost_answer", worker.name)
