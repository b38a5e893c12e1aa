-- Intervals: checks of how long leases, retry delays and idle transactions last.

-- How long an interval that begins now lasts. PostgreSQL compares intervals as if every month had 30 days, but adds them by the
-- calendar: '-12 mons 360 days 1 hour' equals an hour, and ends days ago. So limits are compared with what this returns.
-- Infinite if the end is outside the range of a timestamp, in either direction.
CREATE OR REPLACE FUNCTION faultline.seconds_from_now(span interval) RETURNS double precision
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    IF isfinite(span) AND abs(extract(year FROM span)) <= 1000 AND abs(extract(day FROM span)) <= 400000
       AND abs(extract(hour FROM span)) <= 10000000 THEN -- so that no part of the sum overflows a timestamp
        RETURN extract(epoch FROM moment + span - moment);
    END IF;
    RETURN CASE WHEN span IS NOT NULL THEN 'infinity'::double precision END;
END $$;

-- The lease as plain seconds, which last equally long from any moment on.
CREATE OR REPLACE FUNCTION faultline.checked_lease(lease interval) RETURNS interval
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seconds double precision;
BEGIN
    IF lease > '0' AND lease <= '1 day' AND extract(day FROM lease) = 0 AND extract(month FROM lease) = 0
       AND extract(year FROM lease) = 0 THEN -- plain seconds already, as nearly every lease is
        RETURN lease;
    END IF;
    seconds := faultline.seconds_from_now(lease);
    IF (seconds > 0 AND seconds <= 604800) IS NOT TRUE THEN
        RAISE EXCEPTION 'a lease cannot last %', lease USING ERRCODE = 'FL005',
            HINT = 'A lease is longer than 0 and at most 7 days.';
    END IF;
    RETURN make_interval(secs => seconds);
END $$;

-- The delay of a retry as plain seconds. A negative delay becomes zero.
CREATE OR REPLACE FUNCTION faultline.checked_delay(delay interval) RETURNS interval
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seconds double precision := faultline.seconds_from_now(delay);
BEGIN
    IF (abs(seconds) <= 366 * 86400 * 100.0) IS NOT TRUE THEN
        RAISE EXCEPTION 'a retry cannot be due in %', delay USING ERRCODE = 'FL005',
            HINT = 'A retry is due within 100 years.';
    END IF;
    RETURN make_interval(secs => greatest(0, seconds));
END $$;

-- When a job of enqueue_jobs is due, and when it expires.
CREATE OR REPLACE FUNCTION faultline.start_of(job jsonb, moment timestamptz) RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
    SELECT coalesce((job ->> 'run_at')::timestamptz,
                    moment + faultline.checked_delay(make_interval(secs => coalesce((job ->> 'delay')::double precision, 0))))
$$;
CREATE OR REPLACE FUNCTION faultline.expiry_of(job jsonb, moment timestamptz) RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN job ->> 'expires_in' IS NOT NULL
                THEN moment + faultline.checked_delay(make_interval(secs => (job ->> 'expires_in')::double precision)) END
$$;

-- Sets a timeout by which PostgreSQL ends a client that freezes inside its transaction, which unlocks the job. At least 1 ms,
-- because 0 would mean no timeout.
CREATE OR REPLACE FUNCTION faultline.limit_idling(idle_limit interval) RETURNS text
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN idle_limit IS NOT NULL THEN
        set_config('idle_in_transaction_session_timeout',
                   greatest(1, least(2147483647, ceil(extract(epoch FROM idle_limit) * 1000)))::bigint::text, true) END
$$;
