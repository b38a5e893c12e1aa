"""The searches and their expected results; faultline.pml explains the flags."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    HOLDS = "the protocol"
    LIMIT = "not promised"
    MUTANT = "planted fault"
    PROBE = "must occur"


class Method(Enum):
    """How spin searches: all states, breadth first (shortest trace), or for cycles."""

    ALL = "all states"
    NEAREST = "nearest first"
    CYCLES = "endless runs"


@dataclass(frozen=True)
class Search:
    kind: Kind
    flags: tuple[str, ...]
    violates: (
        str | None
    )  # the promise or situation that spin must find; None when it must find none
    meaning: str
    method: Method

    @property
    def name(self) -> str:
        return " ".join(self.flags) or "base"


ENDLESS = "ENDLESS_RUN"


def _holds(flags: str, meaning: str, method: Method = Method.ALL) -> Search:
    return Search(Kind.HOLDS, tuple(flags.split()), None, meaning, method)


def _broken(kind: Kind, promise: str, flags: str, meaning: str) -> Search:
    chosen = (*flags.split(), f"CHECKED={promise}")
    return Search(kind, chosen, promise, meaning, Method.NEAREST)


def _limit(promise: str, flags: str, meaning: str) -> Search:
    return _broken(Kind.LIMIT, promise, flags, meaning)


def _mutant(promise: str, flags: str, meaning: str) -> Search:
    return _broken(Kind.MUTANT, promise, flags, meaning)


def _probe(situation: str, meaning: str, flags: str = "") -> Search:
    chosen = ("CHECKED=0", f"PROBE={situation}", *flags.split())
    return Search(Kind.PROBE, chosen, situation, meaning, Method.NEAREST)


BASE = _holds("", "every promise, two interventions")

PROTOCOL = (
    BASE,
    _holds("INTERVENTIONS=0 MAX_ATTEMPTS=3", "three attempts, no interventions"),
    _holds("INTERVENTIONS=1", "every run is finite", Method.CYCLES),
    _holds("SYNC_FAILOVER INTERVENTIONS=1 CHECKED=GUARANTEED+ACK_SURVIVES",
           "a restart, or a failover to a synchronous standby: acknowledged commits survive too"),
    _holds("ASYNC_FAILOVER INTERVENTIONS=0", "a standby that lags"),
    _holds("ASYNC_FAILOVER INTERVENTIONS=1 MAX_ATTEMPTS=1", "a standby that lags, one intervention"),
    _holds("NO_NONCE INTERVENTIONS=1", "without a failover the token alone is enough"),
    _holds("NO_EXPIRY_CHECK INTERVENTIONS=1", "the clock only refuses early; the token alone protects"),
    _holds("PAIR_ONLY_UNIQUE INTERVENTIONS=1", "the fence alone ensures one effect"),
    _holds("NO_FENCE INTERVENTIONS=1 CHECKED=ONE_EFFECT",
           "the primary key alone ensures one effect, possibly a stale one"),
    _holds("NO_RECONCILER INTERVENTIONS=1", "claims alone recover the job"),
)  # fmt: skip

LIMITS = (
    _limit("ACK_SURVIVES", "ASYNC_FAILOVER", "an asynchronous failover may lose an acknowledged commit"),
    _limit("TOKEN_ONCE_EVER", "ASYNC_FAILOVER", "after it, a token's number may be issued again"),
    _limit("RUNS_ONCE", "", "a handler may run again: effects outside the database are at-least-once"),
    Search(Kind.LIMIT, ("ENDLESS_HANDLER", "INTERVENTIONS=0"), ENDLESS,
           "a handler that never returns keeps its lease for as long as it is renewed", Method.CYCLES),
)  # fmt: skip

MUTANTS = (
    _mutant("CURRENT_TOKEN", "NO_FENCE", "the ledger's trigger compares nothing"),
    _mutant("CURRENT_TOKEN", "CHECK_THEN_WRITE", "the fence is checked without keeping the row locked"),
    _mutant("ONE_EFFECT", "NO_FENCE PAIR_ONLY_UNIQUE", "no fence, and UNIQUE(job_id, fencing_token) only"),
    _mutant("NO_EFFECT_IF_TOLD", "NO_STATE_CHECK", "the fence does not check that the job is running"),
    _mutant("TERMINAL_ABSORBS", "SPLIT_RECONCILER", "the reconciler selects, then updates blindly"),
    _mutant("LEDGER_IFF", "SPLIT_RECONCILER INTERVENTIONS=0", "the same: the ledger disagrees with the job"),
    _mutant("TOKEN_ONCE", "SPLIT_CLAIM", "a claim selects, then updates blindly"),
    _mutant("TOKEN_ONCE", "TOKEN_NOT_RAISED", "a second claim keeps the token"),
    _mutant("CURRENT_TOKEN", "NO_NONCE ASYNC_FAILOVER", "no lease_id: a token issued again passes"),
    _mutant("TOLD_IS_TRUE", "NO_NONCE ASYNC_FAILOVER INTERVENTIONS=0",
            "no lease_id: a worker takes another worker's entry for its own"),
    _mutant("NO_EFFECT_IF_TOLD", "BLIND_RETRY", "no answer: sent again, and the refusal is believed"),
    _mutant("ONE_EFFECT", "BLIND_RETRY SILENT_ALREADY_YOURS",
            "the same, and commit() answers \"done\" instead of a refusal"),
    _mutant("NO_EFFECT_IF_TOLD", "ABSENCE_IS_PROOF", "no entry yet is taken for no commit"),
    _mutant("NO_EFFECT_IF_TOLD", "EXPIRED_IS_FINAL", "a batch that was sent twice believes lease_expired"),
    _mutant("ONE_EFFECT", "SILENT_REFUSAL", "a refused entry is skipped, and the transaction commits"),
    _mutant("TERMINAL_ABSORBS", "CANCEL_UNFENCED", "cancel neither locks nor checks the row"),
    _mutant("TERMINAL_ABSORBS", "FAIL_UNFENCED", "fail compares nothing"),
    _mutant("HOLDER_ONLY", "FAIL_UNFENCED INTERVENTIONS=0", "fail ends another worker's lease"),
    _mutant("ATTEMPTS_BOUNDED", "RELEASE_WITHOUT_TOKEN", "release uncounts another worker's attempt"),
    _mutant("HOLDER_ONLY", "HEARTBEAT_UNFENCED", "a heartbeat renews another worker's lease"),
    _mutant("TERMINAL_ABSORBS", "RETRY_WITHOUT_STATE_GUARD", "retry queues a job that has succeeded"),
    _mutant("ATTEMPTS_BOUNDED", "ATTEMPTS_AT_END", "an attempt is counted when it fails, not when it starts"),
    _mutant("FENCE_HOLDS", "ASSERT_FENCE_WITHOUT_LOCK", "assert_fence checks without locking"),
    _mutant("ALL_ENDS", "NO_RECONCILER NO_CLAIM_RECONCILE",
            "neither the reconciler nor a claim requeues expired leases"),
)  # fmt: skip

PROBES = (
    _probe("TAKEOVER", "a job is claimed again"),
    _probe("THREE_HOLDERS", "three workers hold a claim on the job at once"),
    _probe("LIVE_LEASE_RECONCILED", "the reconciler requeues a job whose lease has not run out"),
    _probe("CLAIM_RECONCILED", "a claim reconciles an expired lease itself"),
    _probe("EXPIRED_LEASE_RENEWED", "a heartbeat renews an expired lease"),
    _probe("LOCKED_ROW_SKIPPED", "the reconciler skips an expired lease whose row is locked"),
    _probe("REFUSED_TOKEN_MISMATCH", "a stale commit is refused by its token"),
    _probe("REFUSED_LEASE_EXPIRED", "a commit is refused by the clock"),
    _probe("REFUSED_NOT_RUNNING", "a commit is refused because the job was requeued"),
    _probe("LAPSED_AFTER_FENCE", "a lease runs out between the fence and COMMIT, which succeeds"),
    _probe("LOST_ACK_FOUND_IN_LEDGER", "the answer to COMMIT is lost; the ledger has it"),
    _probe("LATE_COMMIT_FENCED", "no answer: the worker fails the job, and its late commit is refused"),
    _probe("COMMITTED_AFTER_KILL", "a worker is killed after sending COMMIT, which arrives"),
    _probe("KILLED_IN_TRANSACTION", "a connection ends with the row locked"),
    _probe("BATCH_ALREADY_YOURS", "a batch is sent twice, and answered \"already yours\""),
    _probe("ATTEMPTS_EXHAUSTED", "a job has used up its attempts"),
    _probe("RELEASED", "a job is released"),
    _probe("SUCCEEDED_AFTER_RETRY", "an operator retries a job, and it succeeds"),
    _probe("CANCELLED_WHILE_RUNNING", "an operator cancels a running job"),
    _probe("CANCEL_LOST_TO_COMMIT", "a cancel comes after the commit, and changes nothing"),
    _probe("TOKEN_REISSUED", "a failover: a token is issued that a worker still holds", "ASYNC_FAILOVER"),
    _probe("REFUSED_BY_LEASE_ALONE", "the same, and that worker is refused by its lease_id alone",
           "ASYNC_FAILOVER"),
    _probe("COMMIT_UNDONE", "a failover undoes a commit", "ASYNC_FAILOVER"),
)  # fmt: skip

DEEP = (
    _holds("MAX_ATTEMPTS=3 INTERVENTIONS=1", "three attempts, one intervention"),
    _holds("SYNC_FAILOVER CHECKED=GUARANTEED+ACK_SURVIVES", "restart, two interventions"),
    _holds("ASYNC_FAILOVER INTERVENTIONS=1", "a standby that lags, two attempts, one intervention"),
)

# For the test suite: seconds.
_QUICK_PROBES = {
    "TAKEOVER",
    "REFUSED_TOKEN_MISMATCH",
    "LOST_ACK_FOUND_IN_LEDGER",
    "LATE_COMMIT_FENCED",
    "REFUSED_BY_LEASE_ALONE",
}
QUICK = (
    _holds("INTERVENTIONS=1", "every promise, one intervention"),
    *MUTANTS[:3],
    *(probe for probe in PROBES if probe.violates in _QUICK_PROBES),
)

ALL = (*PROTOCOL, *LIMITS, *MUTANTS, *PROBES)
