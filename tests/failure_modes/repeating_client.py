"""A client that treats a missing reply as a failure, and repeats its transaction."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import psycopg

from faultline.errors import FaultlineError
from faultline.model import Claim
from faultline.postgres.sessions import run
from faultline.statements import protocol
from faultline_drills.proxy import Proxy
from tests.processes.observed_database import BOUND_SECONDS, ObservedDatabase

PAY = "INSERT INTO app.payments (job_id, token) VALUES (%s, %s)"
AT_COMMIT = (
    "CONSTRAINT TRIGGER held AFTER INSERT ON app.payments"
    " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
)


class RepeatingClient:
    def __init__(self, url: str, claim: Claim) -> None:
        self._url = url
        self._claim = claim
        self.tries = 0
        self.refusal: FaultlineError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join(BOUND_SECONDS)
        assert not self._thread.is_alive(), "the client hangs"

    def _run(self) -> None:
        try:
            for _ in range(3):
                self.tries += 1
                try:
                    self._pay()
                except psycopg.OperationalError:
                    continue  # wrongly treated as "not committed"
                return
        except FaultlineError as refusal:
            self.refusal = refusal

    def _pay(self) -> None:
        with psycopg.connect(self._url) as conn:
            conn.execute(PAY, [self._claim.job_id, self._claim.fencing_token])
            run(conn, protocol.commit(self._claim))


def lose_the_reply(client: RepeatingClient, database: ObservedDatabase, proxy: Proxy) -> None:
    """Start the client; its first COMMIT is executed, and the reply is lost."""
    with ExitStack() as holding:
        holding.enter_context(database.held_back(AT_COMMIT))
        client.start()
        connection = proxy.connection_of(
            port_at_server=database.port_of(database.wait_until_held())
        )
        connection.drop_replies()
    database.wait_until(lambda: database.count("FROM app.payments") == 1, "nothing was committed")
    assert client.tries == 1
    connection.close()
    client.join()
