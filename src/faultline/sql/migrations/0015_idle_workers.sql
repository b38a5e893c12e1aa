-- Workers announce that they are idle, and jobs notify as many of them as they need. See notifications.sql.
CREATE UNLOGGED TABLE faultline.idle_workers (
    worker text             NOT NULL,
    queue  text             COLLATE "C" NOT NULL,
    draw   double precision NOT NULL DEFAULT random(),
    PRIMARY KEY (worker, queue),
    CONSTRAINT idle_texts_are_within_limits CHECK (octet_length(worker) <= 800 AND octet_length(queue) <= 252)
);
CREATE INDEX idle_workers_draw ON faultline.idle_workers (queue, draw);
CREATE UNLOGGED TABLE faultline.pending_wakes (
    queue text   NOT NULL,
    jobs  bigint NOT NULL
) WITH (vacuum_truncate = off);
-- It has one argument more. Two functions with defaults would be ambiguous.
DROP FUNCTION IF EXISTS faultline.wake(text);
