"""Keys that are touched together share a tag, and only in a cluster is there one."""

from __future__ import annotations

import pytest
from redis.crc import key_slot

from contracts import redis_keys as keys

TOGETHER = [
    (keys.DECISIONS, keys.DECISIONS_INDEX),
    (keys.FORECASTS, keys.FORECASTS_UPDATES),
    (keys.LEASE, keys.LEASE_TOKEN),
    (keys.ROUTING, keys.ROUTING_TOKEN),
    (keys.PROFILES, keys.PROFILES_ADDED_TO),
    (keys.HISTORY_MODELS, keys.HISTORY_PLACE, keys.history_ring(10.0, "a"),
     keys.history_ring(3600.0, "a{b}c:d")),
]  # fmt: skip


def test_the_use_is_the_tag_and_the_rest_stays():
    assert keys.tagged(keys.EVENTS) == "headstart:{events}"
    assert keys.tagged(keys.LEASE_TOKEN) == "headstart:{lease}:token"
    assert keys.tagged(keys.history_ring(60.0, "m")) == "headstart:{history}:60:m"
    assert keys.tagged(keys.load_lock("a:b")) == "headstart:{load-lock}:a:b"


@pytest.mark.parametrize("together", TOGETHER, ids=lambda names: names[0])
def test_what_is_touched_together_lies_in_one_slot(together: tuple[str, ...]):
    assert len({key_slot(keys.tagged(key).encode()) for key in together}) == 1


def test_uses_lie_in_many_slots():
    whole = [value for name, value in vars(keys).items() if name.isupper() and name != "PREFIX"]
    assert len({key_slot(keys.tagged(key).encode()) for key in whole}) >= 15


def test_keys_of_one_thing_each_have_its_name_behind_their_use():
    named = (
        keys.load_lock, keys.batch_taken, keys.job_cancelled, keys.job_result, keys.job_lost,
        keys.job_unreadable,
    )  # fmt: skip
    made = [name_of("a:b") for name_of in named]
    assert len(set(made)) == len(named)
    for key in made:
        assert key.startswith(keys.PREFIX)
        assert key.endswith(":a:b")
        assert keys.tagged(key).endswith("}:a:b")
