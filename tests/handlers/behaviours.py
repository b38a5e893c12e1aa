"""Behaviours of handlers in transactions, each run as `def` and as `async def`."""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg
from psycopg import sql

from .bending import BEHAVIOURS, EFFECT, SWALLOWED, Handler, behaviour, do

# ── statements inside of the block ───────────────────────────────────────────────────────────────


@behaviour(succeeds=True)
async def writes_once(h: Handler) -> None:
    async with h.block() as tx:
        await h.write(tx)


STATEMENTS: dict[str, Any] = {
    "commit": "COMMIT",
    "end_in_disguise": "/* harmless /* really */ */ eNd",
    "script": "SELECT 1; COMMIT",
    "commit_and_chain": "COMMIT AND CHAIN",
    "rollback": "ROLLBACK",
    "abort": "abort work",
    "rollback_and_chain": "ROLLBACK AND CHAIN",
    "begin": "BEGIN",
    "prepare": "PREPARE TRANSACTION 'bent'",
    "composed": sql.SQL("SELECT 1; {}").format(sql.SQL("COMMIT")),
    "bytes": b"COMMIT",
    "constraints": "SET CONSTRAINTS ALL IMMEDIATE",
    "reset_all": "RESET ALL",
    "session_ended": "SELECT pg_terminate_backend(pg_backend_pid())",
}


def _statement(name: str, statement: Any) -> None:
    async def sends(h: Handler) -> None:
        async with h.block() as tx:
            await h.write(tx)
            await do(tx.execute(statement))
            raise ValueError("after it")

    async def sends_and_swallows(h: Handler) -> None:
        """The transaction is intact if the statement was refused before it was sent."""
        async with h.block() as tx:
            await h.write(tx)
            with contextlib.suppress(*SWALLOWED):
                await do(tx.execute(statement))

    async def sends_by_hand_and_writes_on(h: Handler) -> None:
        with contextlib.suppress(*SWALLOWED):
            async with h.block() as tx:
                await h.write(tx)
                with contextlib.suppress(*SWALLOWED):
                    await do(h.by_hand(tx, client=True).execute(statement))
                for _ in range(2):
                    with contextlib.suppress(*SWALLOWED):
                        await h.write(tx)

    refused_early = name not in ("constraints", "reset_all", "session_ended")
    BEHAVIOURS[f"sends_{name}_and_fails"] = sends, False
    BEHAVIOURS[f"swallows_{name}"] = sends_and_swallows, refused_early
    if name != "begin":  # to PostgreSQL only a warning: its handler writes three times
        BEHAVIOURS[f"sends_{name}_by_hand"] = sends_by_hand_and_writes_on, False


for _name, _sent in STATEMENTS.items():
    _statement(_name, _sent)


@behaviour()
async def rolls_back_and_writes_in_one_script(h: Handler) -> None:
    with contextlib.suppress(*SWALLOWED):
        async with h.block() as tx:
            script = f"ROLLBACK; INSERT INTO effects (job) VALUES ('{h.job.id}')"
            await do(h.by_hand(tx, client=True).execute(script))


@behaviour()
async def commits_below_the_driver_and_writes_on(h: Handler) -> None:
    with contextlib.suppress(*SWALLOWED):
        async with h.block() as tx:
            await h.write(tx)
            tx.pgconn.exec_(b"COMMIT")
            await h.write(tx)


@behaviour()
async def rolls_back_below_the_driver_and_writes_on(h: Handler) -> None:
    with contextlib.suppress(*SWALLOWED):
        async with h.block() as tx:
            tx.pgconn.exec_(b"ROLLBACK")
            await h.write(tx)


@behaviour()
async def rolls_back_below_the_driver_and_returns(h: Handler) -> None:
    async with h.block() as tx:
        await h.write(tx)
        tx.pgconn.exec_(b"ROLLBACK")


@behaviour()
async def writes_below_the_driver_after_a_rollback(h: Handler) -> None:
    async with h.block() as tx:
        tx.pgconn.exec_(b"ROLLBACK")
        tx.pgconn.exec_(f"INSERT INTO effects (job) VALUES ('{h.job.id}')".encode())


@behaviour()
async def begins_anew_below_the_driver(h: Handler) -> None:
    async with h.block() as tx:
        await h.write(tx)
        tx.pgconn.exec_(b"ROLLBACK; BEGIN READ WRITE")
        await h.write(tx)


@behaviour()
async def sends_commit_many_times(h: Handler) -> None:
    async with h.block() as tx:
        await h.write(tx)
        await do(tx.cursor().executemany("COMMIT", [(), ()]))


@behaviour()
async def streams_a_rollback(h: Handler) -> None:
    async with h.block() as tx:
        await h.write(tx)
        stream = tx.cursor().stream("ROLLBACK")
        if h.is_async:
            async for _ in stream:
                pass
        else:
            list(stream)


@behaviour()
async def copies_after_a_rollback(h: Handler) -> None:
    async with h.block() as tx:
        await h.write(tx)
        async with h.either(tx.cursor().copy("ROLLBACK; COPY effects FROM STDIN")):
            pass


# ── methods of the connection ────────────────────────────────────────────────────────────────────


def _method(name: str) -> None:
    async def calls(h: Handler) -> None:
        async with h.block() as tx:
            await h.write(tx)
            await do(getattr(tx, name)())

    BEHAVIOURS[f"calls_{name}"] = calls, False


for _name in ("commit", "rollback", "close"):
    _method(_name)


@behaviour()
async def uses_the_connection_as_a_block(h: Handler) -> None:
    async with h.block() as tx, h.either(tx):
        await h.write(tx)


@behaviour()
async def turns_autocommit_off(h: Handler) -> None:
    async with h.block() as tx:
        await h.write(tx)
        await do(tx.set_autocommit(False))


@behaviour()
async def closes_the_session_below_the_driver(h: Handler) -> None:
    async with h.block() as tx:
        await h.write(tx)
        tx.pgconn.finish()


@behaviour(succeeds=True)
async def writes_in_a_pipeline(h: Handler) -> None:
    async with h.block() as tx, h.either(tx.pipeline()):
        await h.write(tx)


@behaviour()
async def commits_in_a_pipeline(h: Handler) -> None:
    with contextlib.suppress(*SWALLOWED):
        async with h.block() as tx, h.either(tx.pipeline()):
            await h.write(tx)
            await do(h.by_hand(tx).execute("COMMIT"))
            await h.write(tx)


@behaviour()
async def rolls_back_in_a_pipeline(h: Handler) -> None:
    with contextlib.suppress(*SWALLOWED):
        async with h.block() as tx, h.either(tx.pipeline()):
            await do(h.by_hand(tx).execute("ROLLBACK"))
            await h.write(tx)


@behaviour()
async def leaves_a_pipeline_open(h: Handler) -> None:
    async with h.block() as tx:
        await h.write(tx)
        tx.pgconn.enter_pipeline_mode()


@behaviour()
async def leaves_a_copy_open(h: Handler) -> None:
    async with h.block() as tx:
        await h.write(tx)
        tx.pgconn.send_query(b"COPY effects FROM STDIN")


@behaviour(succeeds=True)
async def reads_by_a_server_side_cursor(h: Handler) -> None:
    async with h.block() as tx:
        await h.write(tx)
        async with h.either(tx.cursor("named")) as cursor:
            await do(cursor.execute("SELECT 1"))
            assert await do(cursor.fetchone()) == (1,)


@behaviour()
async def commits_by_a_server_side_cursor(h: Handler) -> None:
    async with h.block() as tx:
        await h.write(tx)
        async with h.either(tx.cursor("named")) as cursor:
            await do(cursor.execute("SELECT 1; COMMIT"))


# ── errors and nested transactions ───────────────────────────────────────────────────────────────


@behaviour()
async def swallows_its_own_error_outside_of_the_block(h: Handler) -> None:
    with contextlib.suppress(ValueError):
        async with h.block() as tx:
            await h.write(tx)
            raise ValueError


@behaviour()
async def swallows_a_rollback_on_request(h: Handler) -> None:
    with contextlib.suppress(*SWALLOWED):
        async with h.block() as tx:
            await h.write(tx)
            raise psycopg.Rollback


@behaviour()
async def swallows_a_failed_statement(h: Handler) -> None:
    with contextlib.suppress(*SWALLOWED):
        async with h.block() as tx:
            await h.write(tx)
            with contextlib.suppress(*SWALLOWED):
                await do(tx.execute("SELECT 1 / 0"))


@behaviour(succeeds=True)
async def rolls_back_a_nested_transaction(h: Handler) -> None:
    async with h.block() as tx:
        await h.write(tx)
        with contextlib.suppress(ValueError):
            async with h.either(tx.transaction()):
                await h.write(tx)
                raise ValueError


@behaviour(succeeds=True)
async def uses_savepoints_by_hand(h: Handler) -> None:
    async with h.block() as tx:
        await do(tx.execute("SAVEPOINT one"))
        await h.write(tx)
        await do(tx.execute("ROLLBACK TO one"))
        await h.write(tx)
        await do(tx.execute("RELEASE one"))


@behaviour(succeeds=True)
async def tries_again_after_an_error(h: Handler) -> None:
    with contextlib.suppress(ValueError):
        async with h.block() as tx:
            await h.write(tx)
            raise ValueError
    async with h.block() as tx:
        await h.write(tx)


@behaviour(succeeds=True)
async def uses_the_connection_after_its_block(h: Handler) -> None:
    async with h.block() as tx:
        await h.write(tx)
    for _ in range(2):
        with contextlib.suppress(*SWALLOWED):
            await h.write(tx)


@behaviour(succeeds=True)
async def uses_a_cursor_in_a_later_step(h: Handler) -> None:
    """A cursor kept from the first block must not write in the next, on one session."""
    async with h.step() as tx:
        cursor = tx.cursor()
    async with h.block() as tx:
        await h.write(tx)
        with contextlib.suppress(*SWALLOWED):
            await do(cursor.execute(EFFECT, [h.job.id]))


# ── two blocks ───────────────────────────────────────────────────────────────────────────────────


@behaviour()
async def opens_a_transaction_inside_a_step(h: Handler) -> None:
    async with h.step() as tx:
        await h.write(tx)
        async with h.block() as inner:
            await h.write(inner)


@behaviour()
async def opens_a_step_inside_its_transaction(h: Handler) -> None:
    async with h.block() as tx:
        await h.write(tx)
        async with h.step() as inner:
            await h.write(inner)


@behaviour()
async def commits_its_own_connection_inside_a_block(h: Handler) -> None:
    async with h.own() as conn, h.block():
        await h.write(conn)
        await do(h.job.commit(conn))
        await do(conn.commit())


@behaviour()
async def commits_the_blocks_connection(h: Handler) -> None:
    async with h.block() as tx:
        await h.write(tx)
        await do(h.job.commit(tx))


# ── a connection of the handler's own ────────────────────────────────────────────────────────────


@behaviour(succeeds=True)
async def commits_its_own_transaction(h: Handler) -> None:
    async with h.own() as conn:
        await h.write(conn)
        await do(h.job.commit(conn))
        await do(conn.commit())


@behaviour(succeeds=True)
async def commits_in_a_transaction_on_an_autocommit_connection(h: Handler) -> None:
    async with h.own(autocommit=True) as conn, h.either(conn.transaction()):
        await h.write(conn)
        await do(h.job.commit(conn))


@behaviour()
async def commits_and_rolls_back(h: Handler) -> None:
    async with h.own() as conn:
        await h.write(conn)
        await do(h.job.commit(conn))
        await do(conn.rollback())


@behaviour()
async def rolls_back_to_a_savepoint_after_the_entry(h: Handler) -> None:
    async with h.own() as conn:
        await h.write(conn)
        await do(conn.execute("SAVEPOINT nested"))
        with contextlib.suppress(*SWALLOWED):
            await do(h.job.commit(conn))
        with contextlib.suppress(*SWALLOWED):
            await do(conn.execute("ROLLBACK TO nested"))
            await do(conn.commit())


@behaviour()
async def rolls_back_the_nested_transaction_of_the_entry(h: Handler) -> None:
    with contextlib.suppress(*SWALLOWED):
        async with h.own() as conn, h.either(conn.transaction()):
            await h.write(conn)
            with contextlib.suppress(*SWALLOWED):
                async with h.either(conn.transaction()):
                    await do(h.job.commit(conn))
                    raise ValueError


@behaviour(succeeds=True)
async def enters_in_a_nested_transaction_as_expected(h: Handler) -> None:
    async with h.own() as conn, h.either(conn.transaction()):
        await do(h.job.expect_commit(conn))
        await h.write(conn)
        async with h.either(conn.transaction()):
            await do(h.job.commit(conn))


@behaviour()
async def expects_a_commit_and_rolls_the_entry_back(h: Handler) -> None:
    with contextlib.suppress(*SWALLOWED):
        async with h.own() as conn, h.either(conn.transaction()):
            await do(h.job.expect_commit(conn))
            await h.write(conn)
            with contextlib.suppress(ValueError):
                async with h.either(conn.transaction()):
                    await do(h.job.commit(conn))
                    raise ValueError


@behaviour()
async def expects_a_commit_and_commits_without_it(h: Handler) -> None:
    with contextlib.suppress(*SWALLOWED):
        async with h.own() as conn:
            await do(h.job.expect_commit(conn))
            await h.write(conn)
            await do(conn.commit())


@behaviour()
async def expects_a_commit_on_an_autocommit_connection(h: Handler) -> None:
    with contextlib.suppress(*SWALLOWED):
        async with h.own(autocommit=True) as conn:
            await do(h.job.expect_commit(conn))
            await h.write(conn)


@behaviour()
async def commits_on_an_autocommit_connection(h: Handler) -> None:
    async with h.own(autocommit=True) as conn:
        await do(h.job.commit(conn))
        await h.write(conn)


@behaviour()
async def swallows_that_autocommit_is_refused(h: Handler) -> None:
    async with h.own(autocommit=True) as conn:
        with contextlib.suppress(*SWALLOWED):
            await do(h.job.commit(conn))


@behaviour()
async def swallows_that_a_nested_block_is_refused(h: Handler) -> None:
    async with h.step():
        with contextlib.suppress(*SWALLOWED):
            async with h.block() as tx:
                await h.write(tx)


@behaviour()
async def asserts_the_fence_on_an_autocommit_connection(h: Handler) -> None:
    async with h.own(autocommit=True) as conn:
        await do(h.job.assert_fence(conn))
        await h.write(conn)
