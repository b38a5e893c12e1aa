"""The JSON bodies of answers about keys, the audit log and the service itself."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field


class KeyAnswer(BaseModel):
    name: str | None = Field(description="Null if the server requires no keys.")
    scopes: list[str] = Field(examples=[["operate", "read"]])


class AuditEntry(BaseModel):
    id: str
    at: datetime
    actor_kind: str = Field(examples=["key"])
    actor: str = Field(examples=["oncall (flk_ab12cd34)"])
    role: str = Field(description="The account of the database session.")
    address: str | None
    action: str = Field(examples=["pause"])
    object: str | None = Field(examples=["queue mail"])
    result: str = Field(examples=["done", "unchanged", "refused"])
    code: str | None
    detail: str | None
    times: int = Field(description="How many equal refusals this entry counts.")


class AuditPage(BaseModel):
    audit: list[AuditEntry]
    next: str | None = Field(description="`before` of the next page; null at the end.")


class HealthAnswer(BaseModel):
    status: str
    database_seconds: float = Field(description="The database's response time for this request.")


class ReadyAnswer(BaseModel):
    status: str
