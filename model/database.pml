/* The tables, the fence, and the state that a failover can undo: included by faultline.pml. */

/* ── the database ─────────────────────────────────────────────────────────────────────────────────────────────────── */

#define QUEUED 0
#define RUNNING 1
#define SUCCEEDED 2
#define FAILED 3

typedef Database {
    byte state = QUEUED;
    byte token;       /* fencing_token */
    byte lease;       /* lease_id: every claim draws a new one */
    bool expired;     /* lease_expires_at <= clock_timestamp() */
    byte attempts;
    byte entries;     /* rows in the ledger for this job; the last one is: */
    byte entry_token;
    byte entry_lease;
    byte effects;     /* ghost: how often the user's writes were applied */
    byte started;     /* ghost: attempts started since enqueue or retry, minus releases */
    short issued;      /* ghost: the set of tokens issued on this timeline */
};
Database db;
byte row_lock;        /* 0, or 1 + the worker whose transaction holds the job's row */
byte leases_drawn;    /* gen_random_uuid(): never the same twice, not even after a failover */
short ineffective;       /* ghost: leases whose worker learned that its attempt has no effect */

/* The state of a worker's session: what it sent, and the result. */
#define NOTHING 0
#define SENT 1        /* a transaction with user writes and the ledger entry */
#define FENCED 2      /* assert_fence has passed: row locked FOR KEY SHARE */
#define ENTERED 3     /* the ledger's trigger has passed: row locked FOR UPDATE, not yet committed */
#define BATCH_SENT 4  /* commit_many: one statement, no user writes */
#define OK 5
#define REFUSED 6
#define REFUSED_EXPIRED 7 /* refused, but the lease may still be renewed */
#ifdef SILENT_REFUSAL
#define REFUSAL OK
#else
#define REFUSAL (COMMIT_VIOLATION(w) == LEASE_EXPIRED -> REFUSED_EXPIRED : REFUSED)
#endif
#define BROKEN 8      /* the connection ended first; uncommitted work is rolled back */
byte session[WORKERS];
#if PROBE == COMMITTED_AFTER_KILL
bool is_gone[WORKERS]; /* killed or finished, while its messages may still arrive; only this probe needs it */
#define IS_GONE(w) is_gone[w]
#else
#define IS_GONE(w) false
#endif
byte token[WORKERS];  /* the claim that each worker believes to hold */
byte lease[WORKERS];
bool duplicate_in_flight[WORKERS];  /* a batch was sent again while its first copy is in flight */

byte interventions;

#define MAY_INTERVENE (interventions < INTERVENTIONS)
#ifdef ENDLESS_HANDLER
#define MAY_RENEW_AGAIN true
#else
#define MAY_RENEW_AGAIN MAY_INTERVENE
#endif
#define IS_SETTLED(w) (session[w] == NOTHING || session[w] >= OK)
#define IS_OVER (db.state == SUCCEEDED || db.state == FAILED)
#define BIT(number) (1 << (number))

/* fence_violation() */
#define HOLDS 0
#define TOKEN_MISMATCH 1
#define ALREADY_COMMITTED 2
#define NOT_RUNNING 3
#define LEASE_EXPIRED 4

#ifdef NO_NONCE
#define SAME_CLAIM(a_token, a_lease, w) (a_token == token[w])
#else
#define SAME_CLAIM(a_token, a_lease, w) (a_token == token[w] && a_lease == lease[w])
#endif
#ifdef NO_EXPIRY_CHECK
#define HAS_EXPIRED false
#else
#define HAS_EXPIRED db.expired
#endif
#ifdef NO_STATE_CHECK
#define STATE_VIOLATION(otherwise) (db.state == SUCCEEDED -> ALREADY_COMMITTED : otherwise)
#else
#define STATE_VIOLATION(otherwise) (db.state == SUCCEEDED -> ALREADY_COMMITTED : \
                                    (db.state != RUNNING -> NOT_RUNNING : otherwise))
#endif
#define VIOLATION(w) (!SAME_CLAIM(db.token, db.lease, w) -> TOKEN_MISMATCH : \
                      STATE_VIOLATION((HAS_EXPIRED -> LEASE_EXPIRED : HOLDS)))
#ifdef NO_FENCE
#define COMMIT_VIOLATION(w) HOLDS
#else
#define COMMIT_VIOLATION(w) VIOLATION(w)
#endif
#define MAY_GIVE_UP(w) (VIOLATION(w) == HOLDS || VIOLATION(w) == LEASE_EXPIRED) /* lock_own() */
#define IN_LEDGER(w) (db.entries > 0 && SAME_CLAIM(db.entry_token, db.entry_lease, w))

/* The primary key of the ledger. */
#ifdef PAIR_ONLY_UNIQUE
#define IS_DUPLICATE(w) (db.entries > 0 && db.entry_token == token[w])
#else
#define IS_DUPLICATE(w) (db.entries > 0)
#endif

inline move(new_state, is_retry) {
    PROMISE(TERMINAL_ABSORBS, db.state != SUCCEEDED && (db.state != FAILED || is_retry));
    db.state = new_state;
    db.expired = false;
    PROMISE(LEDGER_IFF, (db.entries > 0) == (db.state == SUCCEEDED) && db.effects == db.entries)
}

inline requeue_or_fail() {
    if
    :: db.attempts < MAX_ATTEMPTS -> move(QUEUED, false)
    :: else -> move(FAILED, false); REACHED(ATTEMPTS_EXHAUSTED)
    fi
}

/* ── state that a failover can undo ─────────────────────────────────────────────────────────────────────────────────────── */

#ifdef ASYNC_FAILOVER
#define FAILOVER
#define HISTORY_MAY_BE_LOST promoted
Database standby;     /* the standby's state when the primary was lost */

inline copy(target, source) {
    target.state = source.state; target.token = source.token; target.lease = source.lease;
    target.expired = source.expired; target.attempts = source.attempts; target.entries = source.entries;
    target.entry_token = source.entry_token; target.entry_lease = source.entry_lease;
    target.effects = source.effects; target.started = source.started; target.issued = source.issued
}

inline forget_standby() { /* no longer needed; reset it to reduce the state space */
    standby.state = 0; standby.token = 0; standby.lease = 0; standby.expired = 0; standby.attempts = 0;
    standby.entries = 0; standby.entry_token = 0; standby.entry_lease = 0; standby.effects = 0;
    standby.started = 0; standby.issued = 0
}
#else
#define HISTORY_MAY_BE_LOST false
#endif
#ifdef SYNC_FAILOVER
#define FAILOVER
#endif
#ifdef FAILOVER
bool promoted;
#endif
#if defined(FAILOVER) && (CHECKED & ACK_SURVIVES)
bool acknowledged;    /* ghost: the server acknowledged a commit before the failover */

inline acknowledge(w) { acknowledged = acknowledged || (session[w] == OK && !promoted) }
#else
#define acknowledged false
inline acknowledge(w) { skip }
#endif
