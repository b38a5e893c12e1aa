-- It has one argument more; limit_repair.sql has the new one. Two functions with defaults would be ambiguous.
DROP FUNCTION IF EXISTS faultline.repair_limits(integer);
DROP FUNCTION IF EXISTS faultline.waiting_lines(text);
-- With the queue, so that the end of a job passes over the jobs of paused queues.
DROP INDEX faultline.waiting_jobs_next;
CREATE INDEX waiting_jobs_next ON faultline.waiting_jobs (limit_key, queue, priority, due_at, job_id);
