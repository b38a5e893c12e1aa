-- The shop's own table. Its workers may add payments and read them, and nothing else.
CREATE SCHEMA shop;

CREATE TABLE shop.payments (
    invoice bigint NOT NULL, -- not unique on purpose: that each is paid once is the fence's doing
    cents bigint NOT NULL CHECK (cents > 0),
    paid_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

GRANT USAGE ON SCHEMA shop TO worker;
GRANT SELECT, INSERT ON shop.payments TO worker;
