"""The SQL forms that can insert into the ledger, one function for each."""

from __future__ import annotations

from .steps import Connection, Lease

COLUMNS = "faultline.ledger (job_id, fencing_token, lease_id)"


def plain(conn: Connection, lease: Lease) -> None:
    conn.execute(f"INSERT INTO {COLUMNS} VALUES (%s, %s, %s)", lease)


def through_the_function(conn: Connection, lease: Lease) -> None:
    conn.execute("SELECT faultline.commit(%s, %s, %s)", lease)


def from_a_select(conn: Connection, lease: Lease) -> None:
    conn.execute(f"INSERT INTO {COLUMNS} SELECT %s, %s, %s::uuid", lease)


def in_a_cte(conn: Connection, lease: Lease) -> None:
    conn.execute(
        f"WITH e AS (INSERT INTO {COLUMNS} VALUES (%s, %s, %s) RETURNING 1) SELECT 1", lease
    )


def through_a_view(conn: Connection, lease: Lease) -> None:
    conn.execute(
        "CREATE TEMP VIEW done AS SELECT job_id, fencing_token, lease_id FROM faultline.ledger"
    )
    conn.execute("INSERT INTO done VALUES (%s, %s, %s)", lease)


def on_conflict_do_nothing(conn: Connection, lease: Lease) -> None:
    conn.execute(f"INSERT INTO {COLUMNS} VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", lease)


def on_conflict_do_update(conn: Connection, lease: Lease) -> None:
    conn.execute(
        f"INSERT INTO {COLUMNS} VALUES (%s, %s, %s)"
        " ON CONFLICT (job_id) DO UPDATE SET fencing_token = excluded.fencing_token",
        lease,
    )


def unless_it_exists(conn: Connection, lease: Lease) -> None:
    conn.execute(
        f"INSERT INTO {COLUMNS} SELECT %s, %s, %s::uuid"
        " WHERE NOT EXISTS (SELECT FROM faultline.ledger WHERE job_id = %s)",
        [*lease, lease.job_id],
    )


def merge(conn: Connection, lease: Lease) -> None:
    conn.execute(
        "MERGE INTO faultline.ledger AS l USING (VALUES (%s::uuid, %s::bigint, %s::uuid)) AS"
        " mine (job_id, token, lease_id) ON l.job_id = mine.job_id WHEN NOT MATCHED THEN"
        " INSERT (job_id, fencing_token, lease_id) VALUES (mine.job_id, mine.token, mine.lease_id)",
        lease,
    )


def copy(conn: Connection, lease: Lease) -> None:
    with conn.cursor() as cursor, cursor.copy(f"COPY {COLUMNS} FROM STDIN") as sink:
        sink.write_row(lease)


def forged_batch(conn: Connection, lease: Lease) -> None:
    conn.execute("SET LOCAL faultline.batch = 'on'")
    plain(conn, lease)


def forged_batch_through_the_function(conn: Connection, lease: Lease) -> None:
    conn.execute("SET LOCAL faultline.batch = 'on'")
    through_the_function(conn, lease)


def forged_batch_by_copy(conn: Connection, lease: Lease) -> None:
    conn.execute("SET LOCAL faultline.batch = 'on'")
    copy(conn, lease)


ALWAYS_A_ROW = [
    plain,
    through_the_function,
    from_a_select,
    in_a_cte,
    through_a_view,
    on_conflict_do_nothing,
    on_conflict_do_update,
    copy,
    forged_batch_through_the_function,
]
FORGED = [forged_batch, forged_batch_by_copy]
UNLESS_ENTERED = [unless_it_exists, merge]
EVERY_FORM = [*ALWAYS_A_ROW, *FORGED, *UNLESS_ENTERED]
