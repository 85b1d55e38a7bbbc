from __future__ import annotations

from dataclasses import replace

import pytest

from adapters.redis_scaling import RedisScalingStore
from contracts.reasons import Reason
from contracts.redis_keys import SCALING
from contracts.scaling import Scaling, ScalingStore
from simulator.memory_scaling import MemoryScalingStore

FIRST = Scaling(
    target="chat", at_s=5.0, replicas=3, reason=Reason.PANIC, evidence={"ready": 1.0}, changed=True
)


@pytest.fixture
def store(backend) -> ScalingStore:
    return MemoryScalingStore() if backend.client is None else RedisScalingStore(backend.client)


async def test_the_newest_answer_of_each_target_is_kept(store: ScalingStore):
    assert await store.scalings() == {}
    await store.put_scaling(FIRST)
    await store.put_scaling(replace(FIRST, target="image", replicas=0))
    newer = replace(FIRST, at_s=6.0, replicas=4, changed=False)
    await store.put_scaling(newer)
    assert await store.scalings() == {
        "chat": newer,
        "image": replace(FIRST, target="image", replicas=0),
    }


async def test_an_answer_that_cannot_be_read_hides_no_other(backend, store: ScalingStore):
    if backend.client is None:
        return
    await store.put_scaling(FIRST)
    await backend.client.hset(backend.key(SCALING), "odd", b"{")
    assert await store.scalings() == {"chat": FIRST}
