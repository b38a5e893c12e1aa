-- A claim can begin its search at another priority than 0; protocol.sql has the new one.
DROP FUNCTION IF EXISTS faultline.claim(text, text[], integer, interval, jsonb, text[], bigint);
