-- Tags of jobs, to find and operate them by. See schema.sql. A column of a domain without a constraint is added without writing the
-- table anew, so the constraint comes after it.
CREATE DOMAIN faultline.job_tags AS text[];
ALTER TABLE faultline.jobs ADD COLUMN tags faultline.job_tags;
ALTER TABLE faultline.schedules ADD COLUMN tags faultline.job_tags;
ALTER DOMAIN faultline.job_tags ADD CONSTRAINT tags_are_up_to_20_words CHECK (
    cardinality(VALUE) >= 1 AND cardinality(VALUE) <= 20 AND array_ndims(VALUE) = 1
    AND cardinality(string_to_array(array_to_string(VALUE, ' '), ' ')) = cardinality(VALUE)
    AND array_to_string(VALUE, ' ') ~ '^[A-Za-z0-9_][A-Za-z0-9_.:=/@+-]{0,99}( [A-Za-z0-9_][A-Za-z0-9_.:=/@+-]{0,99})*$') NOT VALID;
