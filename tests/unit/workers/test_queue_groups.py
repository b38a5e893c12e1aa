"""How a claim is divided among a worker's queues, by slots and weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import count
from typing import Any

from faultline import Faultline, QueueShare
from faultline.config import WorkerSettings
from faultline.model import Claim
from faultline.statements.claim_requests import ClaimRequest, claim_requested
from faultline.statements.protocol import claim
from faultline.workers.leases import HeldLeases, Lease
from faultline.workers.queue_groups import QueueGroups
from faultline.workers.served_queues import ServedQueues

ENDLESS = 1_000_000
numbers = count()


class World:
    """A worker's claims from queues with so many due jobs; no job ends by itself."""

    def __init__(self, queues: Any, due: Mapping[str, int], **settings: Any) -> None:
        given = WorkerSettings(queues=queues, **settings)
        served = ServedQueues(Faultline("postgresql://nowhere"), given)
        served.names = tuple(due) if served.is_every else served.names
        self.due = dict(due)
        self.held = HeldLeases()
        self.groups = QueueGroups(given, served, self.held)
        self.claims = 0

    def claim(self, wanted: int) -> Counter[str]:
        """One claim, and the further ones that the claim loop sends at once."""
        claimed: Counter[str] = Counter()
        may_have_more = True
        while may_have_more and (left := wanted - claimed.total()) > 0:
            requests = self.groups.requests(left, is_from_start=True)
            if not requests:
                break
            self.claims += 1
            answer = [job for request in requests for job in self._answer(request)]
            claimed.update(job.queue for job in answer)
            may_have_more = self.groups.record(answer)
        return claimed

    def _answer(self, request: ClaimRequest) -> list[Claim]:
        found: list[Claim] = []
        for queue in request.queues:
            number = min(self.due.get(queue, 0), request.batch_size - len(found))
            if number:
                self.due[queue] -= number
            for _ in range(number):
                job = Claim(str(next(numbers)), 1, "l", "t", queue, "{}", 1, 5, 0, 5, "now")
                self.held.add(Lease(job, sent_at=0.0, lease_seconds=15.0))
                found.append(job)
        return found

    def end(self, queue: str, number: int) -> None:
        leases = [lease for lease in self.held if lease.claim.queue == queue]
        for lease in leases[:number]:
            self.held.remove(lease)

    def end_all(self) -> None:
        for lease in self.held:
            self.held.remove(lease)


def test_a_claim_leaves_no_queue_with_more_leases_than_slots() -> None:
    world = World({"billing": 5, "mail": 20}, {"billing": ENDLESS, "mail": ENDLESS})
    assert world.claim(500) == {"billing": 5, "mail": 20}
    assert world.claim(500) == {}
    world.end("billing", 2)
    assert world.claim(500) == {"billing": 2}


def test_both_queues_are_filled_by_one_claim() -> None:
    world = World({"billing": 5, "mail": 20}, {"billing": ENDLESS, "mail": ENDLESS})
    world.claim(25)
    assert world.claims == 1


def test_a_queue_without_slots_takes_what_is_left_of_the_worker() -> None:
    world = World({"billing": 2, "mail": None}, {"billing": ENDLESS, "mail": ENDLESS})
    assert world.claim(10) == {"billing": 2, "mail": 8}


def test_a_queue_without_jobs_leaves_its_part_to_the_others() -> None:
    queues = {"billing": QueueShare(weight=3), "mail": QueueShare(weight=1)}
    world = World(queues, {"billing": 0, "mail": ENDLESS})
    assert world.claim(100) == {"mail": 100}
    assert world.claim(1) == {"mail": 1}


def test_weights_decide_the_ratio_of_large_claims() -> None:
    queues = {"billing": QueueShare(weight=3), "mail": QueueShare(weight=1)}
    world = World(queues, {"billing": ENDLESS, "mail": ENDLESS})
    assert world.claim(100) == {"billing": 75, "mail": 25}
    assert world.claims == 1


def test_weights_decide_the_ratio_of_claims_of_one_job() -> None:
    queues = {"billing": QueueShare(weight=3), "mail": QueueShare(weight=1)}
    world = World(queues, {"billing": ENDLESS, "mail": ENDLESS})
    claimed: Counter[str] = Counter()
    for _ in range(100):
        claimed += world.claim(1)
    assert claimed == {"billing": 75, "mail": 25}
    assert world.claims == 100


def test_a_queue_saves_no_turns_while_it_is_empty() -> None:
    queues = {"billing": QueueShare(weight=1), "mail": QueueShare(weight=1)}
    world = World(queues, {"billing": 0, "mail": ENDLESS})
    for _ in range(100):
        world.claim(1)
    world.due["billing"] = ENDLESS
    claimed: Counter[str] = Counter()
    for _ in range(10):
        claimed += world.claim(1)
    assert abs(claimed["billing"] - claimed["mail"]) <= 2


def test_a_queue_that_was_empty_is_asked_again_by_the_next_claim_but_one() -> None:
    """Also if the claims follow each other without a pause."""
    queues = {"billing": QueueShare(weight=1), "mail": QueueShare(weight=1)}
    world = World(queues, {"billing": 0, "mail": ENDLESS})
    requests = world.groups.requests(10, is_from_start=True)
    world.groups.record([job for request in requests for job in world._answer(request)])
    world.due["billing"] = ENDLESS
    without, again = (
        [name for request in asked for name in request.queues]
        for asked in (
            world.groups.requests(10, is_from_start=True),
            world.groups.requests(10, is_from_start=True),
        )
    )
    assert (without, sorted(again)) == (["mail"], ["billing", "mail"])


def test_slots_bound_the_part_that_a_weight_gives() -> None:
    queues = {"billing": QueueShare(2, 9), "mail": QueueShare(weight=1)}
    world = World(queues, {"billing": ENDLESS, "mail": ENDLESS})
    assert world.claim(10) == {"billing": 2, "mail": 8}


def test_a_star_is_all_other_queues_together() -> None:
    world = World({"billing": 5, "*": 10}, {"a": ENDLESS, "b": ENDLESS, "billing": ENDLESS})
    claimed = world.claim(100)
    assert claimed["billing"] == 5
    assert claimed["a"] + claimed["b"] == 10


def test_a_star_alone_may_have_slots() -> None:
    world = World({"*": 3}, {"a": ENDLESS})
    assert world.claim(100) == {"a": 3}
    assert world.claim(100) == {}
    world.end_all()
    assert world.claim(100) == {"a": 3}


def test_jobs_of_a_queue_with_slots_are_not_claimed_ahead() -> None:
    world = World({"billing": 5, "mail": None}, {})
    assert not world.groups.may_claim_ahead("billing")
    assert world.groups.may_claim_ahead("mail")
    assert not World({"*": 5}, {}).groups.may_claim_ahead("any")


def test_the_health_of_a_worker_names_the_taken_slots_of_each_queue() -> None:
    world = World({"billing": 5, "mail": None, "*": 7}, {"billing": 3, "other": 1})
    world.claim(10)
    assert world.groups.occupied() == {"billing": (3, 5), "*": (1, 7)}


def test_a_worker_without_slots_and_weights_sends_the_same_claim_as_without_this_feature() -> None:
    world = World(["billing", "mail"], {"billing": ENDLESS, "mail": ENDLESS})
    requests = world.groups.requests(7, is_from_start=True)
    sent = claim_requested("me", requests, lease_seconds=15.0, tasks="{a}")
    before = claim("me", ("billing", "mail"), batch_size=7, lease_seconds=15.0, tasks="{a}")
    assert (sent.sql, sent.params) == (before.sql, before.params)


def test_only_every_tenth_of_its_claims_has_another_form() -> None:
    world = World(["billing"], {"billing": ENDLESS})
    forms = []
    for _ in range(30):
        requests = world.groups.requests(1, is_from_start=True)
        forms.append(requests[0].first_priority != 0)
        world.groups.record(world._answer(requests[0]))
    assert [number for number, is_rotated in enumerate(forms, 1) if is_rotated] == [10, 20, 30]


def test_no_claim_has_another_form_if_priorities_are_strict() -> None:
    world = World(["billing"], {"billing": ENDLESS}, strict_priority=True)
    for _ in range(30):
        [request] = world.groups.requests(1, is_from_start=True)
        assert request.first_priority == 0
        world.groups.record(world._answer(request))
