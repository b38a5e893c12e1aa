"""Executes one interleaving: one round trip at a time, with lock waits detected.

No decision depends on how long a round trip takes. If one does not return, the scheduler asks
PostgreSQL's lock table: either it waits for another actor, or it will return.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from faultline.errors import FaultlineError
from faultline_drills.explorer.interleaving import Decision, ExecutionRecord, Step
from faultline_drills.explorer.step_permit import ActorEvent, ActorKilled, StepPermit

Decide = Callable[[int, tuple[str, ...], str | None], str]
Blocked = Callable[[Sequence[int]], set[int]]  # of these backends, those that wait for an actor

LOCK_CHECK_SECONDS = 0.002
TIMEOUT_SECONDS = 30.0
MAX_TURNS = 400


class ExplorerStuck(FaultlineError):
    """An actor neither returned nor waits for a lock: the run shows nothing."""

    code = "explorer_stuck"


class ActorThread:
    """Runs one actor's actions in a thread."""

    def __init__(
        self,
        name: str,
        actions: Callable[[], None],
        permit: StepPermit,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self.name = name
        self.permit = permit
        self.is_ready = is_ready
        self.is_started = False
        self.is_waiting_for_turn = False
        self.has_ended = False
        self.error: BaseException | None = None
        self._actions = actions
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def can_move(self) -> bool:
        return self.is_waiting_for_turn and self.is_ready()

    @property
    def is_in_flight(self) -> bool:
        return self.is_started and not self.is_waiting_for_turn and not self.has_ended

    def start(self) -> None:
        self.is_started = True
        self._thread.start()

    def move(self) -> None:
        self.is_waiting_for_turn = False
        self.permit.grant()

    def join(self) -> None:
        self._thread.join(TIMEOUT_SECONDS)

    def _run(self) -> None:
        try:
            self._actions()
        except ActorKilled:
            pass
        except BaseException as error:  # a rule reports it, whatever it is
            self.error = error
        finally:
            self.permit.report_end()


class StepScheduler:
    """Lets actors take turns, in the order in which `decide` chooses them."""

    def __init__(
        self,
        actors: Sequence[ActorThread],
        events: SimpleQueue[tuple[StepPermit, ActorEvent]],
        blocked: Blocked,
        *,
        describe_jobs: Callable[[], str] | None = None,
    ) -> None:
        self._actors = {actor.name: actor for actor in actors}
        self._events = events
        self._blocked = blocked
        self._describe_jobs = describe_jobs  # the jobs' states, for a timeline
        self._record = ExecutionRecord()
        self._waiting: set[str] = set()

    def run(self, decide: Decide) -> ExecutionRecord:
        """Run until every actor has ended or none can move."""
        for actor in self._actors.values():  # one by one, for a reproducible order
            actor.start()
            self._settle()
        last: str | None = None
        for turn in range(MAX_TURNS):
            runnable = self._runnable()
            if not runnable:
                if not self._in_flight():
                    break
                # A deadlock that PostgreSQL resolved before this check is noticed below.
                self._record.is_deadlocked = True
                self._settle(despite_waits=True)  # PostgreSQL resolves the deadlock
                continue
            current = last if last in runnable else None
            chosen = decide(turn, runnable, current)
            self._record.decisions.append(Decision(runnable, chosen, current))
            self._take_turn(self._actors[chosen])
            last = chosen
        else:
            raise ExplorerStuck(f"the actors did not end within {MAX_TURNS} turns")
        self._record.is_deadlocked |= any(a.permit.was_deadlocked for a in self._actors.values())
        self._stop_unready()
        return self._record

    def _runnable(self) -> tuple[str, ...]:
        ready = [actor for actor in self._actors.values() if actor.can_move]
        active = [actor for actor in ready if not actor.permit.yields_turn]
        return tuple(actor.name for actor in active or ready)

    def _take_turn(self, actor: ActorThread) -> None:
        step = actor.permit.next_step
        for each in self._actors.values():
            each.permit.yields_turn = False
        actor.move()
        self._settle()
        if self._end_killed_actors():
            self._settle()
        waits = actor.is_in_flight
        if waits:
            self._waiting.add(actor.name)
            self._record.lock_waits.append((actor.name, step))
        self._note(actor, step, "waits for a lock" if waits else "")
        for name in sorted(self._waiting):
            other = self._actors[name]
            if other is not actor and not other.is_in_flight:
                self._waiting.discard(name)
                self._note(other, "continues", "")

    def _note(self, actor: ActorThread, action: str, instead: str) -> None:
        results = actor.permit.results.copy()
        actor.permit.results.clear()
        if self._describe_jobs is not None:
            result = instead or "; ".join(results)
            self._record.steps.append(
                Step(actor.name, action, result, self._describe_jobs(), actor.permit.token)
            )

    def _in_flight(self) -> list[ActorThread]:
        return [actor for actor in self._actors.values() if actor.is_in_flight]

    def _end_killed_actors(self) -> bool:
        killed = [a for a in self._actors.values() if a.is_waiting_for_turn and a.permit.is_killed]
        for actor in killed:
            actor.move()  # to its end
        return bool(killed)

    def _settle(self, *, despite_waits: bool = False) -> None:
        """Wait until each actor in flight returns, ends or waits for another actor."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        all_waited_before = False
        while in_flight := self._in_flight():
            try:
                permit, event = self._events.get(timeout=LOCK_CHECK_SECONDS)
            except Empty:
                pids = [a.permit.backend_pid for a in in_flight if a.permit.backend_pid is not None]
                all_wait = len(pids) == len(in_flight) and self._blocked(pids) >= set(pids)
                if all_wait and all_waited_before and not despite_waits and self._events.empty():
                    return  # asked twice: one may have been woken while PostgreSQL looked at the other
                all_waited_before = all_wait
                if time.monotonic() > deadline:
                    names = ", ".join(actor.name for actor in in_flight)
                    raise ExplorerStuck(
                        f"neither returned nor waiting for a lock: {names}"
                    ) from None
                continue
            all_waited_before = False
            self._handle(self._actors[permit.name], event)

    def _handle(self, actor: ActorThread, event: ActorEvent) -> None:
        if event is ActorEvent.ENDED:
            actor.has_ended = True
            if actor.error is not None:
                self._record.errors.append((actor.name, actor.error))
        else:
            actor.is_waiting_for_turn = True

    def _stop_unready(self) -> None:
        """End the actors that never became ready, such as an idle network."""
        for actor in self._actors.values():
            if actor.is_waiting_for_turn:
                actor.permit.is_killed = True
                actor.move()
            actor.join()
