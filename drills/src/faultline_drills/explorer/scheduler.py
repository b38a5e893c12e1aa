"""Performs one interleaving: lets one actor at a time do one round trip, and sees who waits for whom.

Nothing is decided by how long something takes. A round trip that does not come back is looked up in
the server's own lock table: it either waits for another actor, or will come back.
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
Blocked = Callable[[Sequence[int]], set[int]]  # of these backends, those that wait for one of them

LOOK_AFTER_SECONDS = 0.002
BOUND_SECONDS = 30.0
MAX_TURNS = 400


class Stuck(FaultlineError):
    """An actor neither came back nor waits for another one: the interleaving shows nothing."""

    code = "explorer_stuck"


class ActorThread:
    """A part, played in a thread of its own."""

    def __init__(
        self,
        name: str,
        part: Callable[[], None],
        permit: StepPermit,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self.name = name
        self.permit = permit
        self.is_ready = is_ready
        self.is_started = False
        self.stands = False
        self.has_ended = False
        self.error: BaseException | None = None
        self._part = part
        self._thread = threading.Thread(target=self._play, name=name, daemon=True)

    @property
    def can_move(self) -> bool:
        return self.stands and self.is_ready()

    @property
    def is_under_way(self) -> bool:
        return self.is_started and not self.stands and not self.has_ended

    def start(self) -> None:
        self.is_started = True
        self._thread.start()

    def move(self) -> None:
        self.stands = False
        self.permit.open()

    def join(self) -> None:
        self._thread.join(BOUND_SECONDS)

    def _play(self) -> None:
        try:
            self._part()
        except ActorKilled:
            pass
        except BaseException as error:  # seen by the judge, whatever it is
            self.error = error
        finally:
            self.permit.report_end()


class StepScheduler:
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
        self._describe_jobs = describe_jobs  # how the jobs stand, for a timeline
        self._done = ExecutionRecord()
        self._waiting: set[str] = set()

    def run(self, decide: Decide) -> ExecutionRecord:
        """Until everybody has ended, or nobody can move."""
        for actor in self._actors.values():  # one by one: the order is part of the interleaving
            actor.start()
            self._settle()
        last: str | None = None
        for turn in range(MAX_TURNS):
            runnable = self._runnable()
            if not runnable:
                if not self._in_flight():
                    break
                self._done.is_deadlocked = True  # or it was over before anybody looked: see below
                self._settle(despite_waits=True)  # the server chooses a victim
                continue
            current = last if last in runnable else None
            chosen = decide(turn, runnable, current)
            self._done.decisions.append(Decision(runnable, chosen, current))
            self._take_turn(self._actors[chosen])
            last = chosen
        else:
            raise Stuck(f"no end after {MAX_TURNS} turns")
        self._done.is_deadlocked |= any(a.permit.was_deadlocked for a in self._actors.values())
        self._send_home()
        return self._done

    def _runnable(self) -> tuple[str, ...]:
        able = [actor for actor in self._actors.values() if actor.can_move]
        awake = [actor for actor in able if not actor.permit.yields_turn]
        return tuple(actor.name for actor in awake or able)

    def _take_turn(self, actor: ActorThread) -> None:
        step = actor.permit.next_step
        for each in self._actors.values():
            each.permit.yields_turn = False
        actor.move()
        self._settle()
        if self._end_the_killed():
            self._settle()
        waits = actor.is_under_way
        if waits:
            self._waiting.add(actor.name)
            self._done.waited.append((actor.name, step))
        self._note(actor, step, "waits for a lock" if waits else "")
        for name in sorted(self._waiting):
            other = self._actors[name]
            if other is not actor and not other.is_under_way:
                self._waiting.discard(name)
                self._note(other, "goes on", "")

    def _note(self, actor: ActorThread, what: str, instead: str) -> None:
        heard = actor.permit.results.copy()
        actor.permit.results.clear()
        if self._describe_jobs is not None:
            said = instead or "; ".join(heard)
            self._done.steps.append(
                Step(actor.name, what, said, self._describe_jobs(), actor.permit.token)
            )

    def _in_flight(self) -> list[ActorThread]:
        return [actor for actor in self._actors.values() if actor.is_under_way]

    def _end_the_killed(self) -> bool:
        killed = [a for a in self._actors.values() if a.stands and a.permit.is_killed]
        for actor in killed:
            actor.move()  # to its end
        return bool(killed)

    def _settle(self, *, despite_waits: bool = False) -> None:
        """Until every actor that was let through has come back, has ended, or waits for another."""
        deadline = time.monotonic() + BOUND_SECONDS
        all_waited_before = False
        while in_flight := self._in_flight():
            try:
                permit, events = self._events.get(timeout=LOOK_AFTER_SECONDS)
            except Empty:
                pids = [a.permit.backend_pid for a in in_flight if a.permit.backend_pid is not None]
                all_wait = len(pids) == len(in_flight) and self._blocked(pids) >= set(pids)
                if all_wait and all_waited_before and not despite_waits and self._events.empty():
                    return  # asked twice: one may be woken while the other is looked at
                all_waited_before = all_wait
                if time.monotonic() > deadline:
                    names = ", ".join(actor.name for actor in in_flight)
                    raise Stuck(f"neither back nor waiting for a lock: {names}") from None
                continue
            all_waited_before = False
            self._hear(self._actors[permit.name], events)

    def _hear(self, actor: ActorThread, events: ActorEvent) -> None:
        if events is ActorEvent.ENDED:
            actor.has_ended = True
            if actor.error is not None:
                self._done.errors.append((actor.name, actor.error))
        else:
            actor.stands = True

    def _send_home(self) -> None:
        """Those that were never ready, such as a network that had nothing to deliver."""
        for actor in self._actors.values():
            if actor.stands:
                actor.permit.is_killed = True
                actor.move()
            actor.join()
