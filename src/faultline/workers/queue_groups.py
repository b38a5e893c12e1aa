"""Groups of a worker's queues, and how many jobs a claim takes from each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from faultline.config import WorkerSettings
from faultline.model import Claim
from faultline.queue_shares import EVERY_QUEUE, QueueShare
from faultline.statements.claim_requests import ClaimRequest
from faultline.workers.leases import HeldLeases
from faultline.workers.priority_rotation import PriorityRotation
from faultline.workers.served_queues import ServedQueues


class QueueGroup:
    """One queue with slots or a weight of its own, or all other queues together.

    Claims that continue at the cursor and claims that begin at the start of each lane rotate apart: only the
    second kind finds a job that was queued again before the cursor.
    """

    def __init__(self, share: QueueShare, jobs_per_slot: int = 1) -> None:
        self.slots = share.slots
        self.jobs_per_slot = jobs_per_slot  # more than one if all of its tasks have batch handlers
        self.running_batches = 0
        self.jobs_in_batches = 0  # that run
        self.weight = share.weight or 1
        self.credit = 0  # of the round robin; positive: the group's turn is near
        self.rotations = (PriorityRotation(), PriorityRotation())

    def free(self, taken: int, *, at_most: int) -> int:
        if self.slots is None:
            return at_most
        if self.jobs_per_slot == 1:
            return min(at_most, self.slots - taken)
        free_slots = self.slots - self.running_batches
        return min(at_most, free_slots * self.jobs_per_slot - (taken - self.jobs_in_batches))


class QueueGroups:
    """Divides each claim by the groups' weights, within their slots.

    A lease that the worker holds takes a slot of its group until the end of its attempt is written. So a
    worker never holds more leases of a queue than the queue has slots, and a claimed job never waits for a
    slot of its queue. The leases are counted for each claim, so that no slot can leak. A batch takes one
    slot, if all tasks of the queue have batch handlers.

    If no queue has slots or a weight, there is one group, and every claim asks for all queues at once.
    """

    def __init__(
        self, settings: WorkerSettings, queues: ServedQueues, held_leases: HeldLeases
    ) -> None:
        shares = settings.queue_shares
        rest = shares.pop(EVERY_QUEUE, None) or QueueShare()
        self._queues = queues
        self._held_leases = held_leases
        self._rotates = not settings.strict_priority
        self._own = {
            name: QueueGroup(share, queues.jobs_per_slot([name]))
            for name, share in shares.items()
            if not share.is_default
        }
        self._rest = QueueGroup(rest)
        self.is_divided = bool(self._own) or rest.slots is not None
        self._batches: dict[QueueGroup, int] = {}  # of the last claim
        self._is_from_start = False
        self._has_unasked = False  # groups with free slots that the last claim did not ask
        self._left_out: list[QueueGroup] = []  # by the last claim
        self._short: list[QueueGroup] = []  # had fewer jobs than a claim just now asked for

    def may_claim_ahead(self, queue: str) -> bool:  # called for each job
        return self._own.get(queue, self._rest).slots is None

    def occupied(self) -> dict[str, tuple[int, int]]:
        """For each queue with slots how many are taken, and of how many. From any thread."""
        taken = self._taken()
        named = [*self._own.items(), (EVERY_QUEUE, self._rest)]
        return {
            name: (taken[group] if group.jobs_per_slot == 1 else group.running_batches, group.slots)
            for name, group in named
            if group.slots is not None
        }

    def free_queues(self) -> list[str]:
        """The queues that have a free slot, and '*' if the worker serves every queue."""
        names = list(self._queues.names)
        if self.is_divided:
            taken = self._taken()
            full = {
                group
                for group in [*self._own.values(), self._rest]
                if group.free(taken[group], at_most=1) <= 0
            }
            names = [name for name in names if self._group_of(name) not in full]
            is_rest_free = self._rest not in full
        else:
            is_rest_free = True
        return [*names, EVERY_QUEUE] if self._queues.is_every and is_rest_free else names

    @property
    def jobs_per_slot(self) -> int:
        """How many jobs a free slot takes if nothing else is known about them."""
        return self._queues.jobs_per_slot(self._queues.names)

    def may_start_batch(self, queue: str) -> bool:
        """Whether the group of this queue has a slot for another batch."""
        group = self._group_of(queue)
        if group.slots is None or group.jobs_per_slot == 1:  # or the claim has taken care of it
            return True
        return group.running_batches < group.slots

    def batch_started(self, queue: str, jobs: int) -> None:
        group = self._group_of(queue)
        group.running_batches += 1
        group.jobs_in_batches += jobs

    def batch_ended(self, queue: str, jobs: int) -> None:
        group = self._group_of(queue)
        group.running_batches -= 1
        group.jobs_in_batches -= jobs

    def requests(self, wanted: int, *, is_from_start: bool) -> list[ClaimRequest]:
        """Divide a claim of `wanted` jobs; empty if no group has a free slot.

        A group that had too few jobs for the claim just before this one is left out, so that its part goes
        to the others; the claim after this one asks it again.
        """
        self._left_out, self._short = self._short, []
        self._is_from_start = is_from_start
        if self.is_divided:
            self._batches = self._divide(wanted)
        else:
            self._batches = {self._rest: wanted} if wanted > 0 else {}
        return [
            ClaimRequest(self._names_of(group), batch_size, self._first_priority(group))
            for group, batch_size in self._batches.items()
        ]

    def record(self, claims: Sequence[Claim]) -> bool:
        """Record the answer to the last requests; returns whether there may be more jobs."""
        claimed: dict[QueueGroup, Sequence[Claim]]
        if self._own:
            lists: dict[QueueGroup, list[Claim]] = {group: [] for group in self._batches}
            for claim in claims:
                lists[self._group_of(claim.queue)].append(claim)
            claimed = {**lists}
        else:
            claimed = dict.fromkeys(self._batches, claims)  # of one group
        for group, of_group in claimed.items():
            group.rotations[self._is_from_start].record(of_group)
            if len(of_group) < self._batches[group]:
                self._short.append(group)
        if len(self._short) < len(claimed) or self._has_unasked:
            if not claims:  # else claims without jobs could follow each other without end
                self._short += self._left_out
            return True
        self._short = []
        return False

    def _divide(self, wanted: int) -> dict[QueueGroup, int]:
        """Smooth weighted round robin; a group leaves it when its slots are taken."""
        taken = self._taken()
        every = [*self._own.values(), *([self._rest] if self._names_of(self._rest) else [])]
        candidates = [group for group in every if group not in self._left_out]
        free = {group: group.free(taken[group], at_most=wanted) for group in candidates}
        groups = [group for group in candidates if free[group] > 0]
        batches: dict[QueueGroup, int] = {}
        for _ in range(wanted):
            if not groups:
                break
            for group in groups:
                group.credit += group.weight
            chosen = max(groups, key=lambda group: group.credit)
            chosen.credit -= sum(group.weight for group in groups)
            batches[chosen] = batches.get(chosen, 0) + 1
            if batches[chosen] == free[chosen]:
                groups.remove(chosen)
        self._has_unasked = any(group not in batches for group in groups)
        return batches

    def _taken(self) -> Counter[QueueGroup]:
        return Counter(self._group_of(lease.claim.queue) for lease in self._held_leases)

    def _group_of(self, queue: str) -> QueueGroup:
        return self._own.get(queue, self._rest)

    def _names_of(self, group: QueueGroup) -> Sequence[str]:
        if not self._own:
            return self._queues.names
        if group is self._rest:
            return [name for name in self._queues.names if name not in self._own]
        return [name for name, own in self._own.items() if own is group]

    def _first_priority(self, group: QueueGroup) -> int:
        return group.rotations[self._is_from_start].first_priority() if self._rotates else 0
