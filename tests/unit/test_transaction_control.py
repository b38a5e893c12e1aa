"""The scanner that finds COMMIT and its like in what a handler is about to send."""

from __future__ import annotations

import pytest

from faultline.postgres.transaction_control import find_transaction_control

CONTROL = {
    "commit": "COMMIT",
    "  COMMIT ;": "COMMIT",
    "Commit And Chain": "COMMIT AND CHAIN",
    "commit prepared 'x'": "COMMIT PREPARED",
    "END": "END",
    "end work": "END WORK",
    "abort": "ABORT",
    "rollback": "ROLLBACK",
    "rollback and no chain": "ROLLBACK AND NO CHAIN",
    "rollback prepared 'x'": "ROLLBACK PREPARED",
    "begin": "BEGIN",
    "BEGIN ISOLATION LEVEL SERIALIZABLE": "BEGIN ISOLATION LEVEL SERIALIZABLE",
    "start transaction read only": "START TRANSACTION READ ONLY",
    "prepare transaction 'x'": "PREPARE TRANSACTION",
    "select 1; commit": "COMMIT",
    ";; commit": "COMMIT",
    "insert into t values (1);\n-- done\ncommit": "COMMIT",
    "/* a /* nested */ comment; */ commit": "COMMIT",
    "commit/**/": "COMMIT",
    "select '\\'; commit --'": "COMMIT",  # a backslash means nothing in a plain string
    "select $a$ $$ $a$; rollback": "ROLLBACK",
    "select a$b$; commit; $b$": "COMMIT",  # a name may hold a dollar sign
    "select %(end)s; end": "END",
    "create function f() returns int begin atomic select 1; end; commit": "COMMIT",
    "do $$ begin end $$; commit": "COMMIT",
}
HARMLESS = [
    "select 1",
    "savepoint a",
    "release savepoint a",
    "rollback to a",
    "rollback to savepoint a",
    "ROLLBACK WORK TO a",
    "rollback transaction to savepoint a",
    "prepare p as select 1",
    "select case when true then 1 end",
    "insert into t values ('; commit')",
    "select 'it''s; commit'",
    'select "a; commit"',
    "select E'\\'; commit --'",
    "select $$; commit $$",
    "select $tag$; commit; $$ $tag$",
    "-- commit\nselect 1",
    "select 1 -- ; commit",
    "/* ; commit",
    'select start, "end" from shifts where commit = %s',
    "do $$ begin perform 1; end $$",
    "create rule r as on insert to t do also (delete from a; delete from b)",
    "create or replace function f() returns int begin atomic"
    " select 1; select case when true then 2 end; end; select 3",
    "create procedure p() begin atomic insert into t values (1); end",
]


@pytest.mark.parametrize("sql", CONTROL)
def test_transaction_control_is_found(sql: str) -> None:
    assert find_transaction_control(sql) == CONTROL[sql]


@pytest.mark.parametrize("sql", HARMLESS)
def test_other_statements_are_not_taken_for_transaction_control(sql: str) -> None:
    assert find_transaction_control(sql) is None
