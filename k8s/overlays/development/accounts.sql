-- The accounts of Faultline's processes, each with only the roles that it needs. PostgreSQL's image runs this once. The
-- roles exist before `faultline migrate --roles` grants them rights, so that it needs no right to create roles.
CREATE ROLE faultline_owner NOLOGIN;
CREATE ROLE faultline_producer NOLOGIN;
CREATE ROLE faultline_worker NOLOGIN;
CREATE ROLE faultline_inspector NOLOGIN;
CREATE ROLE faultline_operator NOLOGIN;
GRANT CREATE ON DATABASE faultline TO faultline_owner;

CREATE ROLE migrator LOGIN PASSWORD 'development-only' IN ROLE faultline_owner;
CREATE ROLE worker LOGIN PASSWORD 'development-only' IN ROLE faultline_worker;
CREATE ROLE api LOGIN PASSWORD 'development-only' IN ROLE faultline_producer, faultline_operator;
CREATE ROLE inspector LOGIN PASSWORD 'development-only' IN ROLE faultline_inspector;
CREATE ROLE operator LOGIN PASSWORD 'development-only' IN ROLE faultline_operator, faultline_producer;
