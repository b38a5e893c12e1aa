"""Statements about the keys of the HTTP API, and how a key is made.

A key is `flk_<prefix>_<secret>`. The prefix may be shown and finds the row; of the whole key only the
SHA-256 is stored. It needs no salt and no slow hash: the secret is 256 random bits, not a password.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from faultline.errors import InvalidInput
from faultline.payload import encode_json
from faultline.statements.statement import Statement

MAX_NAME_LENGTH = 100
MAX_LISTED = 1000
_PREFIX_LENGTH = 8
_SECRET_BYTES = 32
_PREFIX_LETTERS = string.ascii_lowercase + string.digits
_KEY = re.compile(r"flk_([a-z0-9]{8})_[A-Za-z0-9_-]{32,128}\Z")


class Scope(StrEnum):
    """What a key may do. A key can have several scopes; none includes another."""

    ENQUEUE = "enqueue"
    READ = "read"
    OPERATE = "operate"


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key, before it is shown once and forgotten."""

    text: str = field(repr=False)
    prefix: str
    key_hash: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A valid key as the database stores it: enough to check it, not to use it."""

    id: int
    name: str
    key_hash: bytes = field(repr=False)
    scopes: frozenset[Scope]
    prefix: str = ""

    @property
    def shown(self) -> str:
        """Its name and the part of it that may be shown."""
        return f"{self.name} (flk_{self.prefix})"

    def is_the_one_hashed(self, presented_hash: bytes) -> bool:
        """Compare in a time that does not depend on where the two differ."""
        return hmac.compare_digest(self.key_hash, presented_hash)


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What an operator may see of a key."""

    id: int
    name: str
    prefix: str
    scopes: list[str]
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


def new_key() -> NewKey:
    prefix = "".join(secrets.choice(_PREFIX_LETTERS) for _ in range(_PREFIX_LENGTH))
    text = f"flk_{prefix}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    return NewKey(text, prefix, hash_of(text))


def hash_of(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def prefix_of(key: str) -> str | None:
    """The prefix that finds the row; None if the text cannot be a key."""
    match = _KEY.match(key)
    return match[1] if match else None


def check_name(name: str) -> str:
    encode_json(name, what="the key's name")
    if not 1 <= len(name) <= MAX_NAME_LENGTH:
        raise InvalidInput(f"a key's name has 1 to {MAX_NAME_LENGTH} characters, not {len(name)}")
    return name


def create(name: str, key: NewKey, scopes: Iterable[Scope]) -> Statement[int]:
    """Store a new key; returns its id."""
    wanted = sorted({Scope(scope).value for scope in scopes})
    if not wanted:
        raise InvalidInput("a key needs at least one scope", hint="enqueue, read, operate")
    return Statement(
        "SELECT faultline.create_api_key(%s, %s, %s, %s)",
        (check_name(name), key.prefix, key.key_hash, wanted),
        lambda rows: int(rows[0][0]),
    )


def find(prefix: str) -> Statement[StoredKey | None]:
    """The key with this prefix, unless it was revoked."""
    return Statement(
        """
        SELECT id, name, key_hash, scopes, prefix FROM faultline.api_keys
        WHERE prefix = %s AND revoked_at IS NULL
        """,
        (prefix,),
        lambda rows: _stored(*rows[0]) if rows else None,
    )


def _stored(key_id: int, name: str, key_hash: bytes, scopes: list[str], prefix: str) -> StoredKey:
    return StoredKey(key_id, name, bytes(key_hash), frozenset(map(Scope, scopes)), prefix)


def listed(*, revoked: bool = False) -> Statement[list[KeyRecord]]:
    """The keys, newest first; with `revoked` also the revoked ones."""
    return Statement(
        """
        SELECT id, name, prefix, scopes, created_at, last_used_at, revoked_at
        FROM faultline.api_keys WHERE %s OR revoked_at IS NULL ORDER BY id DESC LIMIT %s
        """,
        (revoked, MAX_LISTED),
        lambda rows: [KeyRecord(*row) for row in rows],
    )


def id_of(named: str) -> Statement[int | None]:
    """The id of a key that an operator names by prefix, id or the whole key."""
    name = prefix_of(named) or named.removeprefix("flk_").rstrip("_…")
    return Statement(
        """
        SELECT id FROM faultline.api_keys WHERE prefix = %s OR id::text = %s
        ORDER BY prefix = %s DESC LIMIT 1
        """,
        (name, name, name),
        lambda rows: int(rows[0][0]) if rows else None,
    )


def revoke(key_id: int) -> Statement[bool]:
    """Revoke a key; returns whether it was valid until now."""
    return Statement(
        "SELECT faultline.revoke_api_key(%s)", (key_id,), lambda rows: bool(rows[0][0])
    )


def touch(key_id: int) -> Statement[None]:
    """Record that a key was used, to the minute."""
    return Statement("SELECT faultline.touch_api_key(%s)", (key_id,), lambda rows: None)
