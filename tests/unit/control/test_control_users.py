"""Callers of files and batches, by the gateway's keys, also when those change."""

from __future__ import annotations

import pytest
from fastapi import Request

from api.control.access import Door
from api.control.errors import ApiError
from api.control.guessing import FREE_GUESSES
from api.control.users import Users
from api.gateway.keys import digest_of
from contracts.config import CallerKey, ControlConfig, GatewayConfig
from simulator.clock import VirtualClock


def showing(key: str) -> Request:
    headers = [(b"authorization", b"Bearer " + key.encode())]
    return Request({"type": "http", "headers": headers, "client": ("10.0.0.1", 1)})


def test_a_key_that_was_taken_away_opens_nothing_any_more():
    named = CallerKey(name="a", digest=digest_of(b"one"), models=("m",))
    users = Users(GatewayConfig(callers=(named,)), Door(ControlConfig(), VirtualClock(0.0)))
    before = users.of(showing("one"))
    assert before.models == ("m",)
    users.reload(GatewayConfig(keys=("two",)))
    with pytest.raises(ApiError) as refused:
        users.of(showing("one"))
    assert refused.value.status == 401
    after = users.of(showing("two"))
    assert not after.sees(before.owner)


def test_keys_of_callers_cannot_be_guessed_here_either_and_right_ones_go_on():
    door = Door(ControlConfig(admin_key="admin"), VirtualClock(0.0))
    users = Users(GatewayConfig(keys=("two",)), door)
    statuses = []
    for number in range(FREE_GUESSES + 1):
        with pytest.raises(ApiError) as refused:
            users.of(showing(f"{number}"))
        statuses.append(refused.value.status)
    assert statuses == [401] * FREE_GUESSES + [429]
    assert users.of(showing("two")).sees_all is False
    with pytest.raises(ApiError):
        users.of(showing("admin"))
