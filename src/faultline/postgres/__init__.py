"""The driver: sessions, pools, errors, migrations. Only this imports psycopg."""
