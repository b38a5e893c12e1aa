"""The fourteen rules that every drill must keep. No I/O, linear time.

A rule yields 1 for everything that it examines, and a sentence for every violation. A rule that
examined nothing has shown nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

from faultline_drills.judging.record import DrillRecord
from faultline_drills.recording.database_state import Transition
from faultline_drills.recording.history import Phase

_TERMINAL = ("succeeded", "failed")
_LEGAL = {
    (None, "queued"),
    ("queued", "queued"),
    ("queued", "running"),
    ("queued", "failed"),
    ("running", "running"),
    ("running", "queued"),
    ("running", "succeeded"),
    ("running", "failed"),
    ("failed", "failed"),
    ("failed", "queued"),
    ("succeeded", "succeeded"),
}

Rule = Callable[[DrillRecord], Iterator[str | int]]


def no_acknowledged_submit_is_lost(record: DrillRecord) -> Iterator[str | int]:
    for each in record.submits:
        if each.outcome is Phase.OK:
            yield 1
            if each.job not in record.jobs and each.job not in record.lost_jobs:
                yield f"{each.process}: the enqueue of job {each.job} was acknowledged; there is no such job"


def at_most_one_effect(record: DrillRecord) -> Iterator[str | int]:
    rows: dict[str, Counter[int]] = defaultdict(Counter)
    tokens: dict[str, set[int]] = defaultdict(set)
    for effect in record.effects:
        rows[effect.job][effect.part] += 1
        tokens[effect.job].add(effect.token)
    for job, parts in rows.items():
        yield 1
        if max(parts.values()) > 1 or len(tokens[job]) > 1:
            yield f"job {job} took effect {max(parts.values())} times, under tokens {sorted(tokens[job])}"
    entries = Counter(entry.job for entry in record.state.ledger)
    for job, count in entries.items():
        if count > 1:
            yield f"job {job} has {count} ledger entries"


def effects_carry_the_current_token(record: DrillRecord) -> Iterator[str | int]:
    for effect in record.state.effects:
        yield 1
        steps = record.transitions_of.get(effect.job, [])
        own = [step for step in steps if step.transaction == effect.transaction]
        limit = own[0].order if own else effect.order
        earlier = [step for step in steps if step.order < limit]
        current = earlier[-1] if earlier else None
        if current is None or current.after != "running" or current.token != effect.token:
            seen = f"{current.after} under token {current.token}" if current else "unknown"
            yield f"job {effect.job}: effect under token {effect.token} while the job was {seen}"


def tokens_are_issued_once(record: DrillRecord) -> Iterator[str | int]:
    holders: dict[tuple[str, int], str] = {}
    for claim in record.claims:
        if claim.job is None or claim.token is None:
            continue
        yield 1
        first = holders.setdefault((claim.job, claim.token), claim.process)
        if first != claim.process:
            yield f"job {claim.job}: token {claim.token} was issued to {first} and to {claim.process}"
    for each in record.attempts:
        if each.outcome is not Phase.OK or each.job is None or each.token is None:
            continue
        holder = holders.get((each.job, each.token), each.process)
        if holder != each.process:
            yield (
                f"job {each.job}: {each.process} reported a commit under token {each.token},"
                f" which was issued to {holder}"
            )
    for job, steps in record.transitions_of.items():
        highest = 0
        for before, step in pairwise(steps):
            is_claim = (before.after, before.lease) != ("running", step.lease)
            if step.after == "running" and is_claim and step.token <= highest:
                yield f"job {job}: claimed under token {step.token} after token {highest}"
            highest = max(highest, step.token)
    for gone in (server.tokens for server in record.state.lost_states):
        for job, token in record.state.claims:
            lowest, highest = gone.get(job, (token + 1, 0))
            yield 1
            if lowest <= token <= highest:
                yield f"job {job}: token {token} was issued again; a lost server had issued up to {highest}"


def commit_rights_do_not_overlap(record: DrillRecord) -> Iterator[str | int]:
    """A right to commit ends for good, with its lease or the job's next transition.

    One check uses the clock: an INSERT into the ledger that began after its lease had expired. The fence
    reads the clock later than that, so it must have found the lease expired, unless the clock was set
    back meanwhile, which shows in the transitions.
    """
    for job, steps in record.transitions_of.items():
        ended: set[tuple[int, object]] = set()
        for before, step in pairwise(steps):
            right, last = (step.token, step.lease), (before.token, before.lease)
            if step.after == "running" and right in ended:
                yield f"job {job}: the right to commit under token {step.token} returned after its end"
            if before.after == "running" and (step.after != "running" or right != last):
                ended.add(last)
                if step.after == "running":
                    yield (
                        f"job {job}: token {step.token} was issued while token {before.token}"
                        " could still commit"
                    )
            if step.after == "running":
                yield 1
            if step.after == "succeeded" != before.after and _began_after_expiry(before, step):
                yield f"job {job}: committed under token {step.token}, begun after its lease had expired"


def _began_after_expiry(before: Transition, step: Transition) -> bool:
    expires, began = before.lease_expires_at, step.ledger_insert_at
    if expires is None or began is None:
        return False
    return expires <= began <= step.at


def terminal_states_are_final(record: DrillRecord) -> Iterator[str | int]:
    for job, steps in record.transitions_of.items():
        queued_again = 0
        for before, step in pairwise(steps):
            if before.after not in _TERMINAL:
                continue
            yield 1
            if before.after == "succeeded" and step.after != "succeeded":
                yield f"job {job} changed from succeeded to {step.after}"
            elif before.after == "failed" and step.after not in ("failed", "queued"):
                yield f"job {job} changed from failed to {step.after} without a retry"
            elif (before.after, step.after) == ("failed", "queued"):
                queued_again += 1
                if step.attempts:
                    yield f"job {job} was retried and kept its used attempts"
        if queued_again > record.retries[job]:
            yield (
                f"job {job} was queued again {queued_again} times after it had failed;"
                f" operators retried it at most {record.retries[job]} times"
            )


def reported_commits_are_in_the_ledger(record: DrillRecord) -> Iterator[str | int]:
    may_have_committed: set[tuple[str | None, int | None]] = set()
    for each in record.attempts:
        if each.outcome is Phase.FAIL:
            continue
        yield 1
        may_have_committed.add((each.job, each.token))
        reported = (each.job, each.token)
        is_there = reported in record.ledger or reported in record.lost_commits
        if each.outcome is Phase.OK and not is_there:
            yield (
                f"{each.process}: the commit of job {each.job} under token {each.token} was"
                " acknowledged; the ledger has no such entry"
            )
    for job, token in record.ledger:
        if (job, token) not in may_have_committed:
            yield f"the ledger has job {job} under token {token}; no process can have committed it"


def failed_attempts_left_nothing(record: DrillRecord) -> Iterator[str | int]:
    for each in record.attempts:
        if each.outcome is not Phase.FAIL or each.job is None or each.token is None:
            continue
        yield 1
        if (each.job, each.token) in record.ledger:
            yield f"{each.process}: job {each.job} under token {each.token} was refused; it is in the ledger"
        elif (each.job, each.token) in record.effects_of:
            yield f"{each.process}: job {each.job} under token {each.token} was refused; its effect exists"
    keys = {job.key for job in record.state.jobs if job.key is not None}
    queued = {each.detail.get("key") for each in record.submits if each.outcome is not Phase.FAIL}
    for each in record.submits:
        key = each.detail.get("key")
        if each.outcome is Phase.FAIL and key is not None and key in keys and key not in queued:
            yield f"{each.process}: the submission under key {key} was refused; its job exists"


def unknown_outcomes_are_all_or_nothing(record: DrillRecord) -> Iterator[str | int]:
    """Either all of an attempt's writes and its ledger entry exist, or none."""
    for each in record.attempts:
        if each.outcome is Phase.INFO:
            yield 1
    for (job, token), effects in record.effects_of.items():
        fact = record.jobs.get(job)
        if (job, token) not in record.ledger:
            yield f"job {job}: {len(effects)} effect rows under token {token}, which never committed"
        elif fact is not None and len({effect.part for effect in effects}) != fact.parts:
            yield f"job {job}: {len(effects)} of {fact.parts} effect rows under token {token}"
    for job, token in record.ledger:
        fact = record.jobs.get(job)
        if fact is not None and fact.parts and (job, token) not in record.effects_of:
            yield f"job {job} is in the ledger under token {token} without its effect"


def every_job_ends(record: DrillRecord) -> Iterator[str | int]:
    succeeded = {job for job, _ in record.ledger}
    for job in record.state.jobs:
        yield 1
        if job.state not in _TERMINAL:
            yield f"job {job.id} is still {job.state}"
        elif (job.state == "succeeded") != (job.id in succeeded):
            where = "in" if job.id in succeeded else "not in"
            yield f"job {job.id} is {job.state} and {where} the ledger"


def attempts_stay_within_their_limit(record: DrillRecord) -> Iterator[str | int]:
    limits = {job.id: job.max_attempts for job in record.state.jobs}
    for step in record.state.transitions:
        yield 1
        if step.attempts > limits.get(step.job, step.attempts):
            yield f"job {step.job}: attempt {step.attempts} of {limits[step.job]}"
    for job, steps in record.transitions_of.items():
        for before, step in pairwise(steps):
            is_claim = (before.after, step.after) == ("queued", "running")
            if is_claim and step.attempts != before.attempts + 1:
                yield f"job {job}: a claim changed its attempts from {before.attempts} to {step.attempts}"


def one_job_per_key(record: DrillRecord) -> Iterator[str | int]:
    keys = Counter(job.key for job in record.state.jobs if job.key is not None)
    for key, count in keys.items():
        yield 1
        if count > 1:
            yield f"key {key} has {count} jobs"
    answers: dict[str, set[str | None]] = defaultdict(set)
    for each in record.submits:
        is_known = each.job not in record.lost_jobs  # a lost job is rightly enqueued again
        if each.outcome is Phase.OK and "key" in each.detail and is_known:
            answers[each.detail["key"]].add(each.job)
    for key, jobs in answers.items():
        if len(jobs) > 1:
            yield f"key {key} was answered with {len(jobs)} different jobs"


def external_tokens_never_decrease(record: DrillRecord) -> Iterator[str | int]:
    highest: dict[str, int] = {}
    keys: dict[str, str] = {}
    callers: dict[tuple[str, int], str] = {}
    for call in sorted(record.state.external_calls, key=lambda call: call.order):
        if call.key != keys.setdefault(call.job, call.key):
            yield f"job {call.job}: external calls under two keys: {keys[call.job]} and {call.key}"
        if call.caller != callers.setdefault((call.job, call.token), call.caller):
            yield f"job {call.job}: two processes made external calls under token {call.token}"
        if not call.accepted:
            continue
        yield 1
        if call.token < highest.get(call.job, 0):
            yield (
                f"job {call.job}: the external store accepted token {call.token} after"
                f" token {highest[call.job]}"
            )
        highest[call.job] = max(call.token, highest.get(call.job, 0))


def transitions_are_legal(record: DrillRecord) -> Iterator[str | int]:
    for job, steps in record.transitions_of.items():
        yield 1
        state: str | None = None
        token = 0
        for step in steps:
            if step.before != state:
                yield f"job {job} was {state}, but its next transition starts from {step.before}"
            if (step.before, step.after) not in _LEGAL:
                yield f"job {job} changed from {step.before} to {step.after}"
            if step.token < token:
                yield f"job {job}: the token fell from {token} to {step.token}"
            if step.token > token and (step.before, step.after) != ("queued", "running"):
                yield f"job {job}: token {step.token} was issued without a claim"
            state, token = step.after, step.token


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        no_acknowledged_submit_is_lost,
        at_most_one_effect,
        effects_carry_the_current_token,
        tokens_are_issued_once,
        commit_rights_do_not_overlap,
        terminal_states_are_final,
        reported_commits_are_in_the_ledger,
        failed_attempts_left_nothing,
        unknown_outcomes_are_all_or_nothing,
        every_job_ends,
        attempts_stay_within_their_limit,
        one_job_per_key,
        external_tokens_never_decrease,
        transitions_are_legal,
    )
}
