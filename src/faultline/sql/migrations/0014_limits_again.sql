-- It has one argument more; limit_repair.sql has the new one. Two functions with defaults would be ambiguous.
DROP FUNCTION IF EXISTS faultline.repair_limits(integer);
DROP FUNCTION IF EXISTS faultline.waiting_lines(text);
-- With the queue, so that the end of a job passes over the jobs of paused queues.
DROP INDEX faultline.waiting_jobs_next;
CREATE INDEX waiting_jobs_next ON faultline.waiting_jobs (limit_key, queue, priority, due_at, job_id);

-- An operator's choice of an argument stays when code declares another one.
ALTER TABLE faultline.limit_arguments ADD COLUMN changed_by text NOT NULL DEFAULT 'code';
ALTER TABLE faultline.limit_arguments ADD COLUMN declared jsonb;
ALTER TABLE faultline.limit_arguments ADD CONSTRAINT argument_is_of_code_or_operator CHECK (changed_by IN ('code', 'operator'));
UPDATE faultline.limit_arguments SET declared = jsonb_build_object('argument', argument, 'fallback', fallback);
DROP FUNCTION IF EXISTS faultline.bind_argument(text, text, text, text);
