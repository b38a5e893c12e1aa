"""Performs one schedule: lets one actor at a time do one round trip, and sees who waits for whom.

Nothing is decided by how long something takes. A round trip that does not come back is looked up in
the server's own lock table: it either waits for another actor, or will come back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from faultline.errors import FaultlineError
from faultline_drills.explorer.gate import Crashed, Gate, News
from faultline_drills.explorer.schedule import Decision, Performed, Step

Decide = Callable[[int, tuple[str, ...], str | None], str]
Blocked = Callable[[Sequence[int]], set[int]]  # of these backends, those that wait for one of them

LOOK_AFTER_SECONDS = 0.002
BOUND_SECONDS = 30.0
MAX_TURNS = 400


class Stuck(FaultlineError):
    """An actor neither came back nor waits for another one: the schedule shows nothing."""

    code = "explorer_stuck"


class Actor:
    """A part, played in a thread of its own."""

    def __init__(
        self,
        name: str,
        part: Callable[[], None],
        gate: Gate,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self.name = name
        self.gate = gate
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
        self.gate.open()

    def join(self) -> None:
        self._thread.join(BOUND_SECONDS)

    def _play(self) -> None:
        try:
            self._part()
        except Crashed:
            pass
        except BaseException as error:  # seen by the judge, whatever it is
            self.error = error
        finally:
            self.gate.say_ended()


class Performance:
    def __init__(
        self,
        actors: Sequence[Actor],
        news: SimpleQueue[tuple[Gate, News]],
        blocked: Blocked,
        *,
        standing: Callable[[], str] | None = None,
    ) -> None:
        self._actors = {actor.name: actor for actor in actors}
        self._news = news
        self._blocked = blocked
        self._standing = standing  # how the jobs stand, for a timeline
        self._done = Performed()
        self._waiting: set[str] = set()

    def run(self, decide: Decide) -> Performed:
        """Until everybody has ended, or nobody can move."""
        for actor in self._actors.values():  # one by one: the order is part of the schedule
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
        self._done.is_deadlocked |= any(a.gate.was_deadlocked for a in self._actors.values())
        self._send_home()
        return self._done

    def _runnable(self) -> tuple[str, ...]:
        able = [actor for actor in self._actors.values() if actor.can_move]
        awake = [actor for actor in able if not actor.gate.is_resting]
        return tuple(actor.name for actor in awake or able)

    def _take_turn(self, actor: Actor) -> None:
        step = actor.gate.next_step
        for each in self._actors.values():
            each.gate.is_resting = False
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

    def _note(self, actor: Actor, what: str, instead: str) -> None:
        heard = actor.gate.heard.copy()
        actor.gate.heard.clear()
        if self._standing is not None:
            said = instead or "; ".join(heard)
            self._done.steps.append(
                Step(actor.name, what, said, self._standing(), actor.gate.token)
            )

    def _in_flight(self) -> list[Actor]:
        return [actor for actor in self._actors.values() if actor.is_under_way]

    def _end_the_killed(self) -> bool:
        killed = [a for a in self._actors.values() if a.stands and a.gate.is_doomed]
        for actor in killed:
            actor.move()  # to its end
        return bool(killed)

    def _settle(self, *, despite_waits: bool = False) -> None:
        """Until every actor that was let through has come back, has ended, or waits for another."""
        deadline = time.monotonic() + BOUND_SECONDS
        all_waited_before = False
        while in_flight := self._in_flight():
            try:
                gate, news = self._news.get(timeout=LOOK_AFTER_SECONDS)
            except Empty:
                pids = [a.gate.backend_pid for a in in_flight if a.gate.backend_pid is not None]
                all_wait = len(pids) == len(in_flight) and self._blocked(pids) >= set(pids)
                if all_wait and all_waited_before and not despite_waits and self._news.empty():
                    return  # asked twice: one may be woken while the other is looked at
                all_waited_before = all_wait
                if time.monotonic() > deadline:
                    names = ", ".join(actor.name for actor in in_flight)
                    raise Stuck(f"neither back nor waiting for a lock: {names}") from None
                continue
            all_waited_before = False
            self._hear(self._actors[gate.name], news)

    def _hear(self, actor: Actor, news: News) -> None:
        if news is News.ENDED:
            actor.has_ended = True
            if actor.error is not None:
                self._done.errors.append((actor.name, actor.error))
        else:
            actor.stands = True

    def _send_home(self) -> None:
        """Those that were never ready, such as a network that had nothing to deliver."""
        for actor in self._actors.values():
            if actor.stands:
                actor.gate.is_doomed = True
                actor.move()
            actor.join()
