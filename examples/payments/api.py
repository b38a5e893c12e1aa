"""The API stores a payment and the job that charges it in one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, FastAPI
from jobs import charge
from models import Payment, Session
from sqlalchemy.orm import Session as SessionType

api = FastAPI()


def transaction() -> Iterator[SessionType]:
    with Session.begin() as session:
        yield session


# With FastAPI's default scope the answer 201 would be sent before the commit, which may fail.
Transaction = Annotated[SessionType, Depends(transaction, scope="function")]


@api.post("/payments", status_code=201)
def pay(amount: int, session: Transaction) -> dict[str, int]:
    payment = Payment(amount=amount)
    session.add(payment)
    session.flush()
    options = charge.options(conn=session, idempotency_key=f"payment-{payment.id}")
    options.enqueue(payment_id=payment.id)
    return {"id": payment.id}
