/* The protocol of Faultline for spin: one job, three workers, and the failures around them.
 *
 * Mirrors the functions of src/faultline/sql/protocol.sql; docs/model.md explains how, and what is left out. A function
 * that locks, reads and writes the row in one transaction is one d_step here. The user's own transaction, from the fence
 * to COMMIT, is several steps that hold the row's lock. guards.sql is left out on purpose: the functions must be correct
 * without it, and its rules are checked as promises.
 *
 * The #ifdef flags plant a fault, which must be found, or change the environment. CHECKED selects promises, PROBE a
 * situation that must be reachable. `python model/check.py` runs all searches.
 */

#define WORKERS 3
#ifndef MAX_ATTEMPTS
#define MAX_ATTEMPTS 2
#endif
#define MAX_LEASES 14 /* far above what a run can draw; ALL_ENDS checks that it is never reached */
#ifndef INTERVENTIONS
#define INTERVENTIONS 2 /* limit on renewals, releases, cancels, retries, resends and clock steps, so that runs end */
#endif

#include "promises.pml"
#include "database.pml"
#include "verbs.pml"

/* ── failover: sessions end, and an asynchronous standby may have missed the latest commits ──────────────────────── */

#ifdef FAILOVER
inline end_session(w) {
    if
    :: !IS_SETTLED(w) -> session[w] = BROKEN
    :: else
    fi;
    duplicate_in_flight[w] = false
}

inline promote() {
    promoted = true;
#ifdef ASYNC_FAILOVER
    REACHED_IF(COMMIT_UNDONE, db.entries > 0 && standby.entries == 0);
    copy(db, standby);
    forget_standby();
#endif
    row_lock = 0;
    end_session(0); end_session(1); end_session(2);
    printf("failover: token %d, state %d, %d in the ledger\n", db.token, db.state, db.entries);
    PROMISE(ACK_SURVIVES, !acknowledged || db.entries > 0)
}

proctype Failover() {
#ifdef ASYNC_FAILOVER
    /* Only the last shipped state matters, so it is chosen once, at any moment. */
    d_step { copy(standby, db); printf("standby: receives nothing after token %d, state %d\n", db.token, db.state) };
#endif
    d_step { promote() }
}
#endif

/* ── workers ──────────────────────────────────────────────────────────────────────────────────────────────────────── */

#ifdef NO_CLAIM_RECONCILE
#define CLAIM_RECONCILES false
#else
#define CLAIM_RECONCILES (db.state == RUNNING && db.expired)
#endif
#ifdef HEARTBEAT_UNFENCED
#define MAY_RENEW(w) (db.state == RUNNING)
#else
#define MAY_RENEW(w) (SAME_CLAIM(db.token, db.lease, w) && db.state == RUNNING)
#endif
#define IS_ROW_SHARED (row_lock == 0 || session[row_lock - 1] == FENCED) /* FOR NO KEY UPDATE passes FOR KEY SHARE */
#ifdef FAIL_UNFENCED
#define MAY_FAIL(w) true
#else
#define MAY_FAIL(w) MAY_GIVE_UP(w)
#endif
#ifdef RELEASE_WITHOUT_TOKEN
#define MAY_RELEASE(w) (db.state == RUNNING)
#else
#define MAY_RELEASE(w) MAY_GIVE_UP(w)
#endif
#ifdef RETRY_WITHOUT_STATE_GUARD
#define MAY_RETRY true
#else
#define MAY_RETRY (db.state == FAILED)
#endif

inline fail_or_look_up(w) { /* fail(): either it or a late commit is refused; the ledger shows which */
    if
    :: MAY_FAIL(w) -> fail(w)
    :: else ->
        if
        :: IN_LEDGER(w) && session[w] != NOTHING -> learn_committed(w)
        :: else -> learn_no_effect(w)
        fi
    fi
}

inline release_if_held(w) {
    if
    :: MAY_RELEASE(w) -> release(w)
    :: else
    fi
}

inline look_up(w) {
    printf("worker %d: no answer to its commit; in the ledger: %d\n", w, IN_LEDGER(w));
    if
    :: IN_LEDGER(w) -> REACHED(LOST_ACK_FOUND_IN_LEDGER); learn_committed(w); is_known = true
    :: else ->
#ifdef ABSENCE_IS_PROOF
        learn_no_effect(w); is_known = true
#else
        skip
#endif
    fi
}

inline learn_expired(w) {
#ifdef EXPIRED_IS_FINAL
    learn_no_effect(w)
#else
    skip /* a heartbeat may renew the lease, and the first copy may arrive after it */
#endif
}

inline send_again(w) {
    interventions++;
    duplicate_in_flight[w] = (session[w] == BATCH_SENT);
    session[w] = BATCH_SENT;
    printf("worker %d: sends its batch again\n", w)
}

inline forget(w) {
    ineffective = ineffective & ~BIT(lease[w]);
    session[w] = NOTHING; token[w] = 0; lease[w] = 0;
#if PROBE == COMMITTED_AFTER_KILL
    is_gone[w] = false
#else
    skip
#endif
}

/* An attempt may stop between any two steps, for a while (a stall) or for good (a kill). Workers are identical, so the
 * order of their first claims is fixed, to reduce the state space. */
proctype Worker(byte w) {
    bool is_known; /* whether the result of its transaction is known */
#ifdef SPLIT_CLAIM
    byte seen_token;
#endif
idle:
#ifdef SPLIT_CLAIM
    atomic { row_lock == 0 && db.state == QUEUED && leases_drawn < MAX_LEASES -> seen_token = db.token };
    d_step { row_lock == 0 -> db.token = seen_token; seen_token = 0; begin_attempt(w) };
#else
    atomic {
        row_lock == 0 && (db.state == QUEUED || CLAIM_RECONCILES) && leases_drawn < MAX_LEASES && leases_drawn >= w;
        d_step { claim(w) };
        if
        :: lease[w] == 0 -> goto idle
        :: else
        fi
    };
#endif

running:
    if
    :: atomic { db.expired && MAY_RENEW(w) && IS_ROW_SHARED && MAY_RENEW_AGAIN -> d_step { heartbeat(w) }; goto running }
    :: atomic { d_step { session[w] = SENT; printf("worker %d: sends its transaction\n", w) }; goto waiting }
    :: atomic { d_step { session[w] = BATCH_SENT; printf("worker %d: sends a batch\n", w) }; goto waiting_batch }
    :: atomic { row_lock == 0 -> d_step { fail_or_look_up(w) }; goto gone }
    :: atomic { row_lock == 0 && MAY_INTERVENE -> d_step { release_if_held(w) }; goto gone }
    :: atomic { printf("worker %d: killed\n", w); goto gone }
    fi;

waiting:
    if
    :: atomic { session[w] == OK -> d_step { learn_committed(w) }; goto gone }
    :: atomic { session[w] == REFUSED -> d_step { learn_no_effect(w) }; goto gone }
    :: atomic { session[w] == REFUSED_EXPIRED -> d_step { learn_no_effect(w) }; goto failing }
#ifdef BLIND_RETRY
    :: atomic { IS_SETTLED(w) && MAY_INTERVENE -> interventions++; session[w] = SENT;
                printf("worker %d: no answer, sends it again\n", w); goto waiting }
#else
    :: atomic { /* no answer: presence in the ledger is success, absence proves nothing */
        d_step { look_up(w) };
        if
        :: is_known -> goto gone
        :: else -> goto failing
        fi }
#endif
    :: atomic { printf("worker %d: killed\n", w); goto gone }
    fi;

waiting_batch: /* a batch whose answer was lost is sent again unchanged; its first copy may still be in flight */
    if
    :: atomic { session[w] == OK -> d_step { learn_committed(w) }; goto gone }
    :: atomic { session[w] == REFUSED -> d_step { learn_no_effect(w) }; goto gone }
    :: atomic { session[w] == REFUSED_EXPIRED -> d_step { learn_expired(w) }; goto failing }
    :: atomic { MAY_INTERVENE -> d_step { send_again(w) }; goto waiting_batch }
    :: atomic { printf("worker %d: killed\n", w); goto gone }
    fi;

failing:
    if
    :: atomic { row_lock == 0 -> d_step { fail_or_look_up(w) }; goto gone }
    :: atomic { printf("worker %d: killed\n", w); goto gone }
    fi;

gone: /* Its messages may still arrive. After that the slot is a new worker. */
#if PROBE == COMMITTED_AFTER_KILL
    is_gone[w] = true;
#endif
    atomic {
        IS_SETTLED(w) && !duplicate_in_flight[w] -> d_step { forget(w); is_known = false }; goto idle
    }
}

/* ── the server's side of each worker's connection ────────────────────────────────────────────────────────────────── */

proctype Backend(byte w) {
    byte discarded;
end:
    do
    :: d_step { /* assert_fence() */
        session[w] == SENT && row_lock == 0 ->
        if
        :: VIOLATION(w) != HOLDS -> refuse(w); session[w] = REFUSAL
        :: else ->
            session[w] = FENCED;
#ifndef ASSERT_FENCE_WITHOUT_LOCK
            row_lock = w + 1;
#endif
            printf("worker %d: assert_fence passes\n", w)
        fi
    }
    :: d_step { /* commit(): the trigger before the ledger entry */
        (session[w] == SENT && row_lock == 0) || (session[w] == FENCED && (row_lock == 0 || row_lock == w + 1)) ->
        PROMISE(FENCE_HOLDS, session[w] == SENT || (db.state == RUNNING && db.lease == lease[w]));
        row_lock = 0;
        if
#ifdef SILENT_ALREADY_YOURS
        :: COMMIT_VIOLATION(w) == ALREADY_COMMITTED ->
            db.effects++; printf("worker %d: gets already_yours, its writes are applied again\n", w);
            PROMISE(ONE_EFFECT, db.effects <= 1); session[w] = OK
        :: COMMIT_VIOLATION(w) != ALREADY_COMMITTED && (COMMIT_VIOLATION(w) != HOLDS || IS_DUPLICATE(w)) ->
            refuse(w); session[w] = REFUSAL
#else
        :: COMMIT_VIOLATION(w) != HOLDS || IS_DUPLICATE(w) -> refuse(w); session[w] = REFUSAL
#endif
        :: else ->
            session[w] = ENTERED;
#ifndef CHECK_THEN_WRITE
            row_lock = w + 1;
#endif
            printf("worker %d: passes the fence with token %d, lease %d\n", w, token[w], lease[w])
        fi
    }
    :: d_step { /* COMMIT arrives */
        session[w] == ENTERED && (row_lock == 0 || row_lock == w + 1) ->
        row_lock = 0;
        if
        :: IS_DUPLICATE(w) -> refuse(w); session[w] = REFUSAL
        :: else -> enter_and_commit(w); session[w] = OK; acknowledge(w)
        fi
    }
    :: d_step { /* the connection ends before COMMIT */
        session[w] == SENT || session[w] == FENCED || session[w] == ENTERED ->
        PROMISE(FENCE_HOLDS, session[w] != FENCED || (db.state == RUNNING && db.lease == lease[w]));
        REACHED_IF(KILLED_IN_TRANSACTION, row_lock == w + 1);
        row_lock = (row_lock == w + 1 -> 0 : row_lock);
        session[w] = BROKEN;
        printf("worker %d: its transaction is rolled back\n", w)
    }
    :: d_step {
        session[w] == BATCH_SENT && CAN_JUDGE_BATCH(w) -> commit_many(w, session[w]); acknowledge(w)
    }
    :: d_step { /* the first copy of a batch that was sent again: its answer is discarded */
        duplicate_in_flight[w] && CAN_JUDGE_BATCH(w) -> commit_many(w, discarded); duplicate_in_flight[w] = false; discarded = 0
    }
    od
}

/* ── reconciler, operator, clock ─────────────────────────────────────────────────────────────────────────────────────────── */

/* May requeue any running job: a wrong suspicion must do no harm, so the expiry is not checked. */
proctype Reconciler() {
#ifdef NO_RECONCILER
    skip
#else
#ifdef SPLIT_RECONCILER
end:
    do
    :: db.state == RUNNING -> d_step { row_lock == 0 -> reconcile() }
    od
#else
end:
    do
    :: d_step { db.state == RUNNING && row_lock == 0 -> reconcile() }
    od
#endif
#endif
}

proctype Operator() {
end:
    do
#ifdef CANCEL_UNFENCED
    :: d_step { MAY_INTERVENE -> interventions++; printf("operator: cancel\n"); move(FAILED, false) }
#else
    :: d_step {
        MAY_INTERVENE && row_lock == 0 -> interventions++;
        if
        :: db.state == QUEUED || db.state == RUNNING ->
            REACHED_IF(CANCELLED_WHILE_RUNNING, db.state == RUNNING);
            printf("operator: cancel accepted\n"); move(FAILED, false)
        :: else -> REACHED_IF(CANCEL_LOST_TO_COMMIT, db.state == SUCCEEDED)
        fi
    }
#endif
    :: d_step {
        MAY_INTERVENE && row_lock == 0 && MAY_RETRY ->
        interventions++; db.attempts = 0; db.started = 0;
        printf("operator: retry accepted\n");
        move(QUEUED, true)
    }
    od
}

/* A lease runs out at any moment. The database's clock may also be set back. */
proctype Clock() {
end:
    do
    :: d_step {
        db.state == RUNNING && !db.expired -> db.expired = true; printf("clock: lease %d runs out\n", db.lease);
        REACHED_IF(LOCKED_ROW_SKIPPED, row_lock != 0)
    }
    :: d_step {
        db.state == RUNNING && db.expired && MAY_INTERVENE ->
        interventions++; db.expired = false; printf("clock: set back\n")
    }
    od
}

proctype FinalCheck() {
    timeout -> PROMISE(ALL_ENDS, IS_OVER)
}

init {
    atomic {
        run Worker(0); run Worker(1); run Worker(2);
        run Backend(0); run Backend(1); run Backend(2);
        run Reconciler(); run Operator(); run Clock();
#ifdef FAILOVER
        run Failover();
#endif
        run FinalCheck()
    }
}
