-- Transactions of handlers: what PostgreSQL checks when they commit.

-- Jobs: limits on what may be stored.

-- Epochs: the identity of the database.

-- Workers: the registry.

-- Operators: the audit log.
