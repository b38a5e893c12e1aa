"""Wrong keys use up the tokens of an address's bucket."""

from __future__ import annotations

import pytest

from faultline.api.api_errors import ApiError
from faultline.api.rate_limits import WrongKeyLimiter, network_of


def test_only_wrong_keys_use_tokens_up_and_the_wait_ends() -> None:
    now = 0.0
    limiter = WrongKeyLimiter(1.0, 2, clock=lambda: now)
    right, wrong = b"right", b"wrong"
    for number in range(5):  # a fleet of right ones, all at once
        limiter.admit("a", b"%d" % number)
    limiter.accept(right)
    for _ in range(2):
        limiter.admit("a", wrong)
        limiter.reject("a", wrong)
    with pytest.raises(ApiError) as refused:
        limiter.admit("a", wrong)
    assert refused.value.headers == {"Retry-After": "1"}
    limiter.admit("a", right)
    limiter.admit("b", wrong)
    limiter.reject("a", right)  # revoked
    with pytest.raises(ApiError):
        limiter.admit("a", right)
    now = 1.0
    limiter.admit("a", right)


def test_the_addresses_of_one_ipv6_network_share_a_bucket() -> None:
    assert network_of("2001:db8:1:2::7") == network_of("2001:db8:1:2:ffff::1")
    assert network_of("2001:db8:1:2::7") != network_of("2001:db8:1:3::7")
    assert network_of("192.0.2.1") == "192.0.2.1"
    assert network_of("unknown") == "unknown"
