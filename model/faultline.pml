/* The protocol of Faultline, for spin: one job, three workers, and everything that may go wrong around them.
 *
 * Mirrors src/faultline/sql/protocol.sql verb by verb; docs/model.md says how, and what is left out. A verb that locks
 * the row, looks and writes in one transaction is one d_step here. What takes a transaction apart (the user's own, from
 * the fence to COMMIT) is several steps with the row's lock held in between. guards.sql is left out on purpose: the
 * verbs must do without it, and its rules are promises.
 *
 * Flags that plant a fault (each must be caught) or change the world are the #ifdefs. CHECKED selects promises, PROBE a
 * situation that must be reachable. `python model/check.py` runs them all.
 */

#define WORKERS 3
#ifndef MAX_ATTEMPTS
#define MAX_ATTEMPTS 2
#endif
#define MAX_LEASES 14 /* far above what a run can draw; ALL_ENDS shows that it never binds */
#ifndef INTERVENTIONS
#define INTERVENTIONS 2 /* renewals, releases, cancels, retries, resends and clock steps in one run: so that runs end */
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
    stray[w] = false
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
    /* Only the last point that was shipped matters, so it is chosen once, at any moment. */
    d_step { copy(standby, db); printf("standby: receives nothing after token %d, state %d\n", db.token, db.state) };
#endif
    d_step { promote() }
}
#endif

/* ── workers ──────────────────────────────────────────────────────────────────────────────────────────────────────── */

#ifdef NO_TAKE_BACK
#define CLAIM_TAKES_BACK false
#else
#define CLAIM_TAKES_BACK (db.state == RUNNING && db.expired)
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

inline give_up(w) { /* fail(): of a late commit and this, one is refused; then the ledger knows which */
    if
    :: MAY_FAIL(w) -> fail(w)
    :: else ->
        if
        :: IN_LEDGER(w) && session[w] != NOTHING -> tell_committed(w)
        :: else -> tell_no_effect(w)
        fi
    fi
}

inline hand_back(w) {
    if
    :: MAY_RELEASE(w) -> release(w)
    :: else
    fi
}

inline look_up(w) {
    printf("worker %d: no answer to its commit; in the ledger: %d\n", w, IN_LEDGER(w));
    if
    :: IN_LEDGER(w) -> REACHED(LOST_ACK_FOUND_IN_LEDGER); tell_committed(w); is_known = true
    :: else ->
#ifdef ABSENCE_IS_PROOF
        tell_no_effect(w); is_known = true
#else
        skip
#endif
    fi
}

inline hear_expired(w) {
#ifdef EXPIRED_IS_FINAL
    tell_no_effect(w)
#else
    skip /* a heartbeat may renew the lease, and the first copy arrive after it */
#endif
}

inline send_again(w) {
    interventions++;
    stray[w] = (session[w] == BATCH_SENT);
    session[w] = BATCH_SENT;
    printf("worker %d: sends its batch again\n", w)
}

inline forget(w) {
    disowned = disowned & ~BIT(lease[w]);
    session[w] = NOTHING; token[w] = 0; lease[w] = 0;
#if PROBE == COMMITTED_AFTER_KILL
    is_gone[w] = false
#else
    skip
#endif
}

/* An attempt may stop between any two steps: for a while (a stall: others simply go on) or for good (a kill). Workers
 * are alike, so the order of their first claims does not matter, and is fixed: fewer states. */
proctype Worker(byte w) {
    bool is_known; /* what came of its transaction */
#ifdef SPLIT_CLAIM
    byte seen_token;
#endif
idle:
#ifdef SPLIT_CLAIM
    atomic { row_lock == 0 && db.state == QUEUED && leases_drawn < MAX_LEASES -> seen_token = db.token };
    d_step { row_lock == 0 -> db.token = seen_token; seen_token = 0; begin_attempt(w) };
#else
    atomic {
        row_lock == 0 && (db.state == QUEUED || CLAIM_TAKES_BACK) && leases_drawn < MAX_LEASES && leases_drawn >= w;
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
    :: atomic { row_lock == 0 -> d_step { give_up(w) }; goto gone }
    :: atomic { row_lock == 0 && MAY_INTERVENE -> d_step { hand_back(w) }; goto gone }
    :: atomic { printf("worker %d: killed\n", w); goto gone }
    fi;

waiting:
    if
    :: atomic { session[w] == OK -> d_step { tell_committed(w) }; goto gone }
    :: atomic { session[w] == REFUSED -> d_step { tell_no_effect(w) }; goto gone }
    :: atomic { session[w] == REFUSED_EXPIRED -> d_step { tell_no_effect(w) }; goto giving_up }
#ifdef BLIND_RETRY
    :: atomic { IS_SETTLED(w) && MAY_INTERVENE -> interventions++; session[w] = SENT;
                printf("worker %d: no answer, sends it again\n", w); goto waiting }
#else
    :: atomic { /* no answer: presence in the ledger is success, absence proves nothing */
        d_step { look_up(w) };
        if
        :: is_known -> goto gone
        :: else -> goto giving_up
        fi }
#endif
    :: atomic { printf("worker %d: killed\n", w); goto gone }
    fi;

waiting_batch: /* a batch whose answer was lost is sent again as it is; its first copy may still be on the way */
    if
    :: atomic { session[w] == OK -> d_step { tell_committed(w) }; goto gone }
    :: atomic { session[w] == REFUSED -> d_step { tell_no_effect(w) }; goto gone }
    :: atomic { session[w] == REFUSED_EXPIRED -> d_step { hear_expired(w) }; goto giving_up }
    :: atomic { MAY_INTERVENE -> d_step { send_again(w) }; goto waiting_batch }
    :: atomic { printf("worker %d: killed\n", w); goto gone }
    fi;

giving_up:
    if
    :: atomic { row_lock == 0 -> d_step { give_up(w) }; goto gone }
    :: atomic { printf("worker %d: killed\n", w); goto gone }
    fi;

gone: /* What it sent may still arrive. After that the slot is a new worker. */
#if PROBE == COMMITTED_AFTER_KILL
    is_gone[w] = true;
#endif
    atomic {
        IS_SETTLED(w) && !stray[w] -> d_step { forget(w); is_known = false }; goto idle
    }
}

/* ── the server's side of each worker's connection ────────────────────────────────────────────────────────────────── */

proctype Backend(byte w) {
    byte unheard;
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
            db.effects++; printf("worker %d: told already yours, its writes are applied again\n", w);
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
    :: d_step { /* the first copy of a batch that was sent again: nobody hears its answer */
        stray[w] && CAN_JUDGE_BATCH(w) -> commit_many(w, unheard); stray[w] = false; unheard = 0
    }
    od
}

/* ── everybody else ───────────────────────────────────────────────────────────────────────────────────────────────── */

/* Expired, dead, or only believed dead: a wrong suspicion must do no harm, so the clock is not even asked. */
proctype Reconciler() {
#ifdef NO_RECONCILER
    skip
#else
#ifdef SPLIT_RECONCILER
end:
    do
    :: db.state == RUNNING -> d_step { row_lock == 0 -> take_back() }
    od
#else
end:
    do
    :: d_step { db.state == RUNNING && row_lock == 0 -> take_back() }
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

/* Leases run out at any moment, whatever their holder is doing. The database's clock may also be set back. */
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

proctype Judge() {
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
        run Judge()
    }
}
