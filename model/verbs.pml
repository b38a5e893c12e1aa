/* The functions of protocol.sql, one inline each: included by faultline.pml. */

/* ── verbs ────────────────────────────────────────────────────────────────────────────────────────────────────────── */

inline begin_attempt(w) {
#ifdef TOKEN_NOT_RAISED
    db.token = (db.token == 0 -> 1 : db.token);
#else
    db.token++;
#endif
    leases_drawn++;
    REACHED_IF(TOKEN_REISSUED, db.token == token[0] || db.token == token[1] || db.token == token[2]);
    db.lease = leases_drawn;
    token[w] = db.token;
    lease[w] = db.lease;
    printf("worker %d: claim gives token %d, lease %d\n", w, db.token, db.lease);
    PROMISE(TOKEN_ONCE, (db.issued & BIT(db.token)) == 0);
    PROMISE(RUNS_ONCE, leases_drawn == 1);
    PROMISE(TOKEN_ONCE_EVER, db.token == leases_drawn);
    db.issued = db.issued | BIT(db.token);
    db.started++;
#ifndef ATTEMPTS_AT_END
    db.attempts++;
#endif
    PROMISE(ATTEMPTS_BOUNDED, db.started <= MAX_ATTEMPTS && db.attempts <= MAX_ATTEMPTS);
    move(RUNNING, false);
    REACHED_IF(TAKEOVER, leases_drawn > 1);
    REACHED_IF(THREE_HOLDERS, lease[0] > 0 && lease[1] > 0 && lease[2] > 0);
    PROMISE(ALL_ENDS, leases_drawn < MAX_LEASES)
}

inline claim(w) {
    if
    :: db.state == RUNNING -> REACHED(CLAIM_RECONCILED); requeue_or_fail()
    :: else
    fi;
    if
    :: db.state == QUEUED -> begin_attempt(w)
    :: else
    fi
}

inline heartbeat(w) {
    printf("worker %d: heartbeat, lease %d renewed\n", w, db.lease);
    PROMISE(HOLDER_ONLY, db.lease == lease[w] && db.state == RUNNING);
    db.expired = false;
#ifndef ENDLESS_HANDLER
    interventions++;
#endif
    REACHED(EXPIRED_LEASE_RENEWED)
}

inline fail(w) {
    printf("worker %d: fail accepted\n", w);
    PROMISE(HOLDER_ONLY, db.lease == lease[w] && db.state == RUNNING);
    learn_no_effect(w);
#ifdef ATTEMPTS_AT_END
    db.attempts++;
#endif
    requeue_or_fail()
}

inline release(w) {
    printf("worker %d: release accepted\n", w);
    PROMISE(HOLDER_ONLY, db.lease == lease[w] && db.state == RUNNING);
    learn_no_effect(w);
    interventions++;
    db.attempts--;
    db.started = (db.lease == lease[w] -> db.started - 1 : db.started);
    move(QUEUED, false);
    REACHED(RELEASED)
}

/* The effects of the ledger's trigger and of the following COMMIT. */
inline enter_and_commit(w) {
    printf("worker %d: committed with token %d, lease %d\n", w, token[w], lease[w]);
    PROMISE(CURRENT_TOKEN, db.state == RUNNING && db.token == token[w] && db.lease == lease[w]);
    PROMISE(NO_EFFECT_IF_TOLD, (ineffective & BIT(lease[w])) == 0);
    REACHED_IF(LAPSED_AFTER_FENCE, db.expired);
    REACHED_IF(SUCCEEDED_AFTER_RETRY, db.token > MAX_ATTEMPTS && db.attempts == 1);
    db.entries++;
    db.entry_token = token[w];
    db.entry_lease = lease[w];
    db.effects++;
    PROMISE(ONE_EFFECT, db.effects <= 1);
    move(SUCCEEDED, false);
    REACHED_IF(COMMITTED_AFTER_KILL, IS_GONE(w))
}

inline refuse(w) {
    printf("worker %d: commit with token %d, lease %d refused (now %d, %d)\n", w, token[w], lease[w], db.token, db.lease);
    REACHED_IF(REFUSED_TOKEN_MISMATCH, VIOLATION(w) == TOKEN_MISMATCH);
    REACHED_IF(REFUSED_LEASE_EXPIRED, VIOLATION(w) == LEASE_EXPIRED);
    REACHED_IF(REFUSED_NOT_RUNNING, VIOLATION(w) == NOT_RUNNING);
    REACHED_IF(LATE_COMMIT_FENCED, (ineffective & BIT(lease[w])) != 0);
    REACHED_IF(REFUSED_BY_LEASE_ALONE, db.token == token[w] && db.lease != lease[w] && db.state == RUNNING);
#ifdef SILENT_REFUSAL
    db.effects++; /* the entry is skipped without an error, and the rest of the transaction commits */
    PROMISE(ONE_EFFECT, db.effects <= 1);
#endif
}

/* Skips a locked row, unless the fence has failed whatever the row's holder does. */
#define CAN_JUDGE_BATCH(w) (row_lock == 0 || !MAY_GIVE_UP(w))

inline commit_many(w, answer) {
    if
    :: IN_LEDGER(w) && db.state == SUCCEEDED ->
        REACHED(BATCH_ALREADY_YOURS); answer = OK
    :: else ->
        if
        :: COMMIT_VIOLATION(w) != HOLDS || IS_DUPLICATE(w) -> refuse(w); answer = REFUSAL
        :: else -> enter_and_commit(w); answer = OK
        fi
    fi
}

inline reconcile() {
    REACHED_IF(LIVE_LEASE_RECONCILED, !db.expired);
    printf("reconciler: requeues lease %d\n", db.lease);
    requeue_or_fail()
}

#define HAS_OWN_ENTRY(w) (db.entries > 0 && db.entry_lease == lease[w])

inline learn_committed(w) {
    printf("worker %d: learns that it committed\n", w);
    PROMISE(TOLD_IS_TRUE, HAS_OWN_ENTRY(w) || (HISTORY_MAY_BE_LOST && session[w] == OK))
}

inline learn_no_effect(w) {
    printf("worker %d: learns that it has no effect\n", w);
    PROMISE(NO_EFFECT_IF_TOLD, !HAS_OWN_ENTRY(w));
    ineffective = ineffective | BIT(lease[w])
}
