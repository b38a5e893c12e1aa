"""The slots and weights of a worker's queues, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from faultline.errors import InvalidSettings

EVERY_QUEUE = "*"
MAX_SLOTS = 10_000
MAX_WEIGHT = 1_000
NO_SLOTS = "*"  # in the text form: no number of its own


@dataclass(frozen=True)
class QueueShare:
    """How many slots of a worker a queue may use, and how often its jobs are claimed.

    `slots` is the most jobs of the queue that the worker holds at once; None: as many as the worker has
    slots. `weight` is the queue's part of the claims while several queues have due jobs; None: 1.
    """

    slots: int | None = None
    weight: int | None = None

    def __post_init__(self) -> None:
        _check(self.slots, "slots", "a queue's slots", MAX_SLOTS)
        _check(self.weight, "weight", "a queue's weight", MAX_WEIGHT)

    @property
    def is_default(self) -> bool:
        return self.slots is None and self.weight is None


GivenShares = Mapping[str, "int | QueueShare | None"]


def shares_of(queues: Sequence[str] | GivenShares) -> dict[str, QueueShare]:
    """The share of each queue, in the order given. A number means slots."""
    if not isinstance(queues, Mapping):
        return dict.fromkeys(queues, QueueShare())
    return {
        name: given if isinstance(given, QueueShare) else QueueShare(slots=given)
        for name, given in queues.items()
    }


def parse_queues(text: str) -> dict[str, QueueShare]:
    """Read `name[:slots][=weight]`, separated by commas.

    A name may contain ':', so only a number behind the last ':' is taken for slots. `name:*` is a queue
    without slots of its own, whatever its name ends with.
    """
    shares: dict[str, QueueShare] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, share = _parse(item)
        if name in shares and (shares[name] != share or not share.is_default):
            raise InvalidSettings(
                f"--queues names the queue {name} twice", hint=f"keep one of them, such as {item}"
            )
        shares[name] = share
    if not shares:
        raise InvalidSettings("--queues names no queue", hint="--queues billing,mail")
    return shares


def refuse_ambiguous(shares: Mapping[str, QueueShare], queues_of_tasks: Mapping[str, str]) -> None:
    """Refuse `shard:1` for one slot of `shard` if a task uses a queue `shard:1`.

    `queues_of_tasks` has the queue of each task. If both queues are in the list, both are meant.
    """
    for name, share in shares.items():
        written = f"{name}:{share.slots}"
        if share.slots is None or name == EVERY_QUEUE or written in shares:
            continue
        for task, queue in queues_of_tasks.items():
            if queue == written:
                raise InvalidSettings(
                    f"{written} in --queues means the queue {name} with {share.slots} slots, but the task"
                    f" {task} uses a queue {written}",
                    hint=f"write {written}:* for the queue {written}; if both are meant, name both",
                )


def _parse(item: str) -> tuple[str, QueueShare]:
    rest, equals, weight_text = item.partition("=")
    weight = _number(weight_text, item) if equals else None
    name, colon, slots_text = rest.rpartition(":")
    if not colon:
        return rest, QueueShare(weight=weight)
    if slots_text == NO_SLOTS:
        return name, QueueShare(weight=weight)
    if not (slots_text.isascii() and slots_text.isdigit()):
        return rest, QueueShare(weight=weight)
    return name, QueueShare(slots=_number(slots_text, item), weight=weight)


def _number(text: str, item: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InvalidSettings(
            f"{item!r} in --queues has no number behind '='",
            hint="name:slots=weight, such as billing:5=3",
        )
    return int(text)


def _check(value: object, name: str, what: str, limit: int) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        raise InvalidSettings(
            f"{what} must be a whole number from 1 to {limit:,}, not {value!r}",
            hint=f"leave out the {name}, or pause a queue that must not run: faultline queues pause",
        )
