-- The shop's own table. Its workers may insert and read payments only.
CREATE SCHEMA shop;

CREATE TABLE shop.payments (
    invoice bigint NOT NULL, -- not unique on purpose: the fence ensures that each invoice is paid once
    cents bigint NOT NULL CHECK (cents > 0),
    paid_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

GRANT USAGE ON SCHEMA shop TO worker;
GRANT SELECT, INSERT ON shop.payments TO worker;
