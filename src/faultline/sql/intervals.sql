-- Intervals: how long leases, retry delays and idle transactions may last.

-- How long an interval that begins now lasts. PostgreSQL compares intervals as if every month had 30 days, and adds them by the
-- calendar, so that '-12 mons 360 days 1 hour' equals an hour and ends days ago: limits apply to what this function returns.
-- Infinite for what ends beyond the years that a timestamp can hold, whichever way.
CREATE OR REPLACE FUNCTION faultline.seconds_from_now(span interval) RETURNS double precision
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    moment timestamptz := clock_timestamp();
BEGIN
    IF isfinite(span) AND abs(extract(year FROM span)) <= 1000 AND abs(extract(day FROM span)) <= 400000
       AND abs(extract(hour FROM span)) <= 10000000 THEN -- no part of the sum leaves the range of a timestamp on its own
        RETURN extract(epoch FROM moment + span - moment);
    END IF;
    RETURN CASE WHEN span IS NOT NULL THEN 'infinity'::double precision END;
END $$;

-- The lease as plain seconds, which end at the same moment whatever they are added to.
CREATE OR REPLACE FUNCTION faultline.checked_lease(lease interval) RETURNS interval
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seconds double precision;
BEGIN
    IF lease > '0' AND lease <= '1 day' AND extract(day FROM lease) = 0 AND extract(month FROM lease) = 0
       AND extract(year FROM lease) = 0 THEN -- as nearly every lease: plain seconds already
        RETURN lease;
    END IF;
    seconds := faultline.seconds_from_now(lease);
    IF (seconds > 0 AND seconds <= 604800) IS NOT TRUE THEN
        RAISE EXCEPTION 'a lease lasts more than nothing and at most 7 days, not %', lease USING ERRCODE = 'FL005';
    END IF;
    RETURN make_interval(secs => seconds);
END $$;

-- The time until a retry, likewise. What has passed already is at once.
CREATE OR REPLACE FUNCTION faultline.checked_delay(delay interval) RETURNS interval
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seconds double precision := faultline.seconds_from_now(delay);
BEGIN
    IF (abs(seconds) <= 366 * 86400 * 100.0) IS NOT TRUE THEN
        RAISE EXCEPTION 'a retry comes within 100 years, not in %', delay USING ERRCODE = 'FL005';
    END IF;
    RETURN make_interval(secs => greatest(0, seconds));
END $$;

-- A client that freezes inside its transaction is ended by its own backend, and sets the job free. Zero would mean no limit.
CREATE OR REPLACE FUNCTION faultline.limit_idling(idle_limit interval) RETURNS text
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN idle_limit IS NOT NULL THEN
        set_config('idle_in_transaction_session_timeout',
                   greatest(1, least(2147483647, ceil(extract(epoch FROM idle_limit) * 1000)))::bigint::text, true) END
$$;
