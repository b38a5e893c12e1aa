"""How slots and weights of queues are written, and the default concurrency."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from faultline import InvalidSettings, QueueShare, WorkerSettings
from faultline.queue_shares import parse_queues, refuse_ambiguous

PARSED = {
    "billing,mail": {"billing": QueueShare(), "mail": QueueShare()},
    "billing:5, mail:20": {"billing": QueueShare(5), "mail": QueueShare(20)},
    "billing=3,mail=1": {"billing": QueueShare(weight=3), "mail": QueueShare(weight=1)},
    "billing:5=3": {"billing": QueueShare(5, 3)},
    "*": {"*": QueueShare()},
    "billing:5,*:10=2": {"billing": QueueShare(5), "*": QueueShare(10, 2)},
    "eu:billing": {"eu:billing": QueueShare()},
    "eu:billing:5": {"eu:billing": QueueShare(5)},
    "shard:1:*": {"shard:1": QueueShare()},
    "shard:1:*=2": {"shard:1": QueueShare(weight=2)},
    "shard:1:5": {"shard:1": QueueShare(5)},
    "shard:1,shard:1:*": {"shard": QueueShare(1), "shard:1": QueueShare()},
    "mail,mail": {"mail": QueueShare()},
}
REFUSED = {
    "": "names no queue",
    " , ": "names no queue",
    "billing:0": "slots must be a whole number from 1 to 10,000, not 0",
    "billing=0": "weight must be a whole number from 1 to 1,000, not 0",
    "billing=": "no number behind '='",
    "billing=3:5": "no number behind '='",
    "billing=fast": "no number behind '='",
    "billing:5,billing": "the queue billing twice",
    "billing,billing:5": "the queue billing twice",
    "billing:5,billing:5": "the queue billing twice",
}


@pytest.mark.parametrize("text", PARSED)
def test_slots_stand_behind_the_last_colon_and_weights_behind_the_equals_sign(text: str) -> None:
    assert parse_queues(text) == PARSED[text]


@pytest.mark.parametrize("text", REFUSED)
def test_a_list_of_queues_that_has_no_meaning_is_refused(text: str) -> None:
    with pytest.raises(InvalidSettings, match=REFUSED[text]):
        parse_queues(text)


@pytest.mark.parametrize("value", [0, -1, 10_001, True, 1.5, "5"])
def test_slots_that_are_no_number_of_jobs_are_refused(value: Any) -> None:
    with pytest.raises(InvalidSettings, match="slots must be a whole number"):
        WorkerSettings(queues={"billing": value})


def test_the_concurrency_is_the_sum_of_the_slots_if_every_queue_has_some() -> None:
    assert WorkerSettings(queues={"billing": 5, "mail": 20}).concurrency == 25
    assert WorkerSettings(queues={"billing": 5, "*": 10}).concurrency == 15
    assert WorkerSettings(queues={"billing": 5, "mail": None}).concurrency == 10
    assert WorkerSettings(queues={"billing": 5, "mail": 20}, concurrency=7).concurrency == 7
    assert WorkerSettings(queues=["billing:5"]).concurrency == 10
    assert WorkerSettings().concurrency == 10


def test_a_sum_of_slots_above_the_limit_of_the_concurrency_is_the_limit() -> None:
    assert WorkerSettings(queues={"billing": 9_000, "mail": 9_000}).concurrency == 10_000


def test_names_in_a_list_are_taken_as_they_are() -> None:
    settings = WorkerSettings(queues=["shard:1", "mail"])
    assert settings.queues == ("shard:1", "mail")


def test_settings_can_be_copied_with_their_slots() -> None:
    settings = WorkerSettings(queues={"billing": 5, "mail": QueueShare(weight=2)})
    copied = dataclasses.replace(settings, worker_id="other")
    assert copied.queue_shares == {"billing": QueueShare(5), "mail": QueueShare(weight=2)}


def test_a_number_that_may_belong_to_the_name_of_a_tasks_queue_is_refused() -> None:
    tasks = {"copy": "shard:1", "send": "mail"}
    with pytest.raises(InvalidSettings, match=r"task copy uses a queue shard:1 .*shard:1:\*"):
        refuse_ambiguous(parse_queues("shard:1,mail:5"), tasks)


@pytest.mark.parametrize("text", ["shard:1:*", "shard:2", "shard:1:5", "shard:1,shard:1:*", "*:1"])
def test_a_list_that_has_one_meaning_is_accepted(text: str) -> None:
    refuse_ambiguous(parse_queues(text), {"copy": "shard:1", "send": "*:1"})
