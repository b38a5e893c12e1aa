"""CSRF tokens: a cookie that only our page can read and send as a header.

Tokens are signed, so that a cookie set by another site is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

COOKIE = "faultline_csrf"
HEADER = "X-Faultline-CSRF"


class CsrfTokens:
    """Valid while this process runs; a page gets a new token when it is reloaded."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def issue(self) -> str:
        return self._signed(secrets.token_urlsafe(24))

    def is_ours(self, token: str) -> bool:
        nonce, _, _ = token.partition(".")
        return bool(nonce) and hmac.compare_digest(self._signed(nonce).encode(), token.encode())

    def agree(self, cookie: str, header: str) -> bool:
        return self.is_ours(cookie) and hmac.compare_digest(cookie.encode(), header.encode())

    def _signed(self, nonce: str) -> str:
        signature = hmac.new(self._secret, nonce.encode(), hashlib.sha256).hexdigest()
        return f"{nonce}.{signature}"
