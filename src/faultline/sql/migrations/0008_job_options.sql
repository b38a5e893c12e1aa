-- Options of single jobs: when a job expires, and its own timeout and lease. See schema.sql.
CREATE DOMAIN faultline.job_overrides AS jsonb CONSTRAINT overrides_are_known CHECK (
    jsonb_typeof(VALUE) = 'object' AND VALUE - 'timeout' - 'lease' = '{}'
    AND CASE jsonb_typeof(VALUE -> 'timeout') WHEN 'number' THEN
            (VALUE -> 'timeout')::numeric > 0 AND (VALUE -> 'timeout')::numeric <= 3162240000 ELSE NOT VALUE ? 'timeout' END
    AND CASE jsonb_typeof(VALUE -> 'lease') WHEN 'number' THEN
            (VALUE -> 'lease')::numeric BETWEEN 0.1 AND 604800 ELSE NOT VALUE ? 'lease' END);
ALTER TABLE faultline.jobs
    ADD COLUMN expires_at timestamptz,
    ADD COLUMN overrides faultline.job_overrides;
CREATE INDEX jobs_expiring ON faultline.jobs (expires_at) WHERE state = 'queued' AND expires_at IS NOT NULL;
-- They return one column more; protocol.sql and workers.sql have the new ones.
DROP FUNCTION IF EXISTS faultline.leases_of(text);
DROP FUNCTION IF EXISTS faultline.sift(uuid[], bigint, bigint); -- select_claimable replaces it
DROP FUNCTION IF EXISTS faultline.claim(text, text[], integer, interval, jsonb, text[], bigint);
