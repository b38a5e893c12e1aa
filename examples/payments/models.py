"""The tables of the example, and the engine that API and workers share."""

from __future__ import annotations

import os

from sqlalchemy import ForeignKey, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

url = os.environ["DATABASE_URL"].replace("postgresql://", "postgresql+psycopg://")
engine = create_engine(url, pool_pre_ping=True)
Session = sessionmaker(engine)


class Base(DeclarativeBase):
    pass


class Payment(Base):
    __tablename__ = "payments"

    id: Mapped[int] = mapped_column(primary_key=True)
    amount: Mapped[int]


class Charge(Base):
    __tablename__ = "charges"

    id: Mapped[int] = mapped_column(primary_key=True)
    payment_id: Mapped[int] = mapped_column(ForeignKey(Payment.id))
    worker: Mapped[str]
