/* Promises that must hold, and situations that must occur: included by faultline.pml. */

/* ── promises ─────────────────────────────────────────────────────────────────────────────────────────────────────── */

#define ONE_EFFECT 1        /* at most one effect per job */
#define CURRENT_TOKEN 2     /* an effect carries the token and lease that are current when it commits */
#define TOKEN_ONCE 4        /* no token is issued to two claims, on one timeline */
#define TERMINAL_ABSORBS 8  /* succeeded is final; only retry leaves failed */
#define ATTEMPTS_BOUNDED 16 /* no more attempts are started than the job allows */
#define NO_EFFECT_IF_TOLD 32 /* an attempt that was told "refused" or "failed" has no effect, then or later */
#define LEDGER_IFF 64       /* succeeded if and only if in the ledger, and user writes commit with the entry */
#define HOLDER_ONLY 128     /* a worker renews or ends only its own lease */
#define TOLD_IS_TRUE 256    /* a worker that was told "committed" finds its own entry in the ledger */
#define FENCE_HOLDS 512     /* between assert_fence and the end of its transaction no other worker gets the job */
#define ALL_ENDS 1024       /* when no process can take a step, the job is succeeded or failed */
#define GUARANTEED 2047
/* not promised; check.py shows that each can be broken */
#define ACK_SURVIVES 2048   /* an acknowledged commit survives a failover */
#define TOKEN_ONCE_EVER 4096 /* no token is issued to two claims, on any timeline */
#define RUNS_ONCE 8192      /* the handler, and so an effect outside the database, runs at most once */

#ifndef CHECKED
#define CHECKED GUARANTEED
#endif
#define PROMISE(promise, condition) assert((CHECKED & promise) == 0 || (condition))

/* ── situations that must occur, or the search proves nothing ─────────────────────────────────────────────────── */

#define TAKEOVER 1
#define REFUSED_TOKEN_MISMATCH 2
#define REFUSED_LEASE_EXPIRED 3
#define REFUSED_NOT_RUNNING 4
#define LAPSED_AFTER_FENCE 5
#define LOST_ACK_FOUND_IN_LEDGER 6
#define LATE_COMMIT_FENCED 7
#define EXPIRED_LEASE_RENEWED 8
#define COMMITTED_AFTER_KILL 9
#define KILLED_IN_TRANSACTION 10
#define ATTEMPTS_EXHAUSTED 11
#define SUCCEEDED_AFTER_RETRY 12
#define CANCEL_LOST_TO_COMMIT 13
#define CANCELLED_WHILE_RUNNING 14
#define BATCH_ALREADY_YOURS 15
#define LOCKED_ROW_SKIPPED 16
#define CLAIM_RECONCILED 17
#define RELEASED 18
#define THREE_HOLDERS 19
#define TOKEN_REISSUED 20
#define REFUSED_BY_LEASE_ALONE 21
#define COMMIT_UNDONE 22
#define LIVE_LEASE_RECONCILED 23

#ifndef PROBE
#define PROBE 0
#endif
#define REACHED(situation) assert(PROBE != situation)
#define REACHED_IF(situation, condition) assert(PROBE != situation || !(condition))
