-- Jobs whose ends are awaited. See results.sql.
ALTER TABLE faultline.jobs ADD COLUMN awaited boolean NOT NULL DEFAULT false;
