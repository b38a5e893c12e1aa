"""The connection of a TestCase, whose transaction is open around the whole test.

For PostgreSQL every block of the handler is then a savepoint, in which the protocol refuses ledger entries:
a rollback to it could lose the entry alone. A test's transaction is rolled back as a whole, so here the entry
is let in. The fence is checked as always.
"""

from __future__ import annotations

from typing import TypeVar

from faultline.adapters.django.connection import DjangoConnection
from faultline.errors import NotCommitted
from faultline.statements.statement import Statement, no_result

T = TypeVar("T")

_OPEN = "SELECT faultline.open_transaction("
_COMMIT = "SELECT faultline.commit("
_MARK = "set_config('faultline.opened', faultline.transaction_mark(%s::uuid, %s), true)"


class CaseConnection(DjangoConnection):
    def run(self, statement: Statement[T]) -> T:
        if statement.sql.startswith(_OPEN):
            job_id, token, lease, completes, _ = statement.params
            super().run(
                Statement(
                    f"SELECT faultline.assert_fence(%s::uuid, %s, %s::uuid), {_MARK}",
                    (job_id, token, lease, lease, completes),
                    no_result,
                )
            )
            return statement.read([])
        if statement.sql.startswith(_COMMIT):
            if len(self.own_blocks) > 1:
                raise NotCommitted(
                    "job.commit(connection) in a nested atomic() block, which is a savepoint",
                    hint="call it in the outermost block",
                )
            self.allow_entry(statement.params[2])
        return super().run(statement)

    def allow_entry(self, lease: str) -> None:
        super().run(Statement(f"SELECT {_MARK}", (lease, True), no_result))

    def sever(self) -> None:
        """Let the innermost block be rolled back: the test needs its connection."""
        if self._wrapper.in_atomic_block:
            self._wrapper.set_rollback(True)
