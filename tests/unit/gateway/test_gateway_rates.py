"""A key's rate: bursts of a minute's worth, then steadily, and no reset by a reload."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.gateway.rates import Rates
from contracts.config import CallerKey

SLOW = CallerKey(name="slow", digest=b"", requests_per_min=6.0)


def test_a_minutes_worth_may_come_at_once_and_then_one_every_ten_seconds():
    rates = Rates()
    assert [rates.take(SLOW, 0.0) for _ in range(6)] == [None] * 6
    assert rates.take(SLOW, 0.0) == pytest.approx(10.0)
    assert rates.take(SLOW, 4.0) == pytest.approx(6.0), "a refusal costs nothing"
    assert rates.take(SLOW, 10.0) is None
    assert rates.take(SLOW, 10.0) == pytest.approx(10.0)


def test_a_quiet_key_gathers_no_more_than_a_minutes_worth():
    rates = Rates()
    rates.take(SLOW, 0.0)
    assert [rates.take(SLOW, 86_400.0) for _ in range(7)].count(None) == 6


def test_less_than_one_a_minute():
    rates, rare = Rates(), replace(SLOW, requests_per_min=0.5)
    assert rates.take(rare, 0.0) is None
    assert rates.take(rare, 60.0) == pytest.approx(60.0)
    assert rates.take(rare, 121.0) is None


def test_keys_do_not_pay_for_one_another_and_others_have_no_rate():
    rates, other = Rates(), replace(SLOW, name="other")
    for _ in range(6):
        rates.take(SLOW, 0.0)
    assert rates.take(other, 0.0) is None
    assert rates.take(None, 0.0) is None
    assert rates.take(replace(SLOW, requests_per_min=None), 0.0) is None


def test_a_reload_refills_nothing():
    rates = Rates()
    for _ in range(6):
        rates.take(SLOW, 0.0)
    rates.keep([SLOW, replace(SLOW, name="new")])
    assert rates.take(SLOW, 0.0) == pytest.approx(10.0)
    rates.keep([])
    assert rates.take(SLOW, 0.0) is None, "one that was taken away and given again is new"


def test_another_rate_takes_the_same_share_over():
    rates = Rates()
    for _ in range(3):
        rates.take(SLOW, 0.0)
    doubled = replace(SLOW, requests_per_min=12.0)
    assert [rates.take(doubled, 0.0) for _ in range(7)].count(None) == 6


def test_a_time_that_does_not_go_on_gives_nothing():
    rates = Rates()
    for _ in range(6):
        rates.take(SLOW, 5.0)
    assert rates.take(SLOW, 1.0) is not None


def test_what_other_gateways_let_in_is_paid_here_too_down_to_a_bucket_of_debt():
    told = {"slow": 4}
    rates = Rates(lambda key: told.pop(key, 0))
    assert [rates.take(SLOW, 0.0) for _ in range(3)].count(None) == 2
    assert rates.admitted == {"slow": 2}
    told["slow"] = 100
    assert rates.take(SLOW, 0.0) == pytest.approx(70.0)
    rates.keep([])
    assert rates.admitted == {}
