-- It has one argument more; limit_repair.sql has the new one. Two functions with defaults would be ambiguous.
DROP FUNCTION IF EXISTS faultline.repair_limits(integer);
DROP FUNCTION IF EXISTS faultline.waiting_lines(text);
