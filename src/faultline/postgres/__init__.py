"""The driver: sessions, pools, errors and migrations. The only package that imports psycopg."""
