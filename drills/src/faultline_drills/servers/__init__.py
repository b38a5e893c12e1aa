"""What a drill connects to: scratch databases, PgBouncer, servers on hosts."""
