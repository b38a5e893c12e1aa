"""A model, and engines for the dialects that the tests of SQLAlchemy use."""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy import NullPool, create_engine
from sqlalchemy.engine import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

ASYNC_DRIVERS = ("psycopg", "asyncpg")
DRIVER = os.environ.get("FAULTLINE_TEST_ALCHEMY_DRIVER", "psycopg")


class Base(DeclarativeBase):
    pass


class Payment(Base):
    __tablename__ = "payments"

    id: Mapped[int] = mapped_column(primary_key=True)
    invoice: Mapped[int]


def pay(session: Session, invoice: int = 42) -> None:
    session.add(Payment(invoice=invoice))


def engine_for(url: str, **options: Any) -> Engine:
    return create_engine(url.replace("postgresql://", f"postgresql+{DRIVER}://"), **options)


def async_engine_for(url: str, driver: str, **options: Any) -> AsyncEngine:
    """Without a pool: each run of a test has an event loop of its own."""
    dialect = url.replace("postgresql://", f"postgresql+{driver}://")
    return create_async_engine(dialect, poolclass=NullPool, **options)
