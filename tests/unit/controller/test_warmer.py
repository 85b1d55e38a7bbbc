"""Weights are read ahead for real: on a models folder in memory, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from contracts.config import ModelProfile, WarmConfig
from contracts.errors import Transient
from contracts.ids import ModelId, NodeId
from contracts.plan import WarmFile
from contracts.reasons import Reason
from contracts.world import HostMemory, Residency, WorldSnapshot
from controller.warmer import LOOK_S, Warmer
from simulator.memory_ports import MemoryWeightCache, VirtualClock
from tests.worlds import MIB, NODE, A, B, C, model, world

MEMORY = HostMemory(total_bytes=1000 * MIB, available_bytes=900 * MIB)
OTHER = NodeId("other")


class House:
    """A warmer with one folder; what it says is in ``seen``."""

    def __init__(self, *statuses, files=None, caches=True) -> None:
        self.clock = VirtualClock()
        self.world = world(*statuses)
        self.cache = MemoryWeightCache(
            self.clock, files or {"a.gguf": 80 * MIB, "b.gguf": 40 * MIB}, memory=MEMORY
        )
        self.profiles = {
            A: ModelProfile(model=A, weights=("a.gguf",)),
            B: ModelProfile(model=B, weights=("b.gguf", "missing.gguf")),
        }
        self.changes = 0
        self.warmer = Warmer(
            clock=self.clock,
            caches={NODE: self.cache} if caches else {},
            profiles=lambda: self.profiles,
            world=lambda: self.world,
            config=WarmConfig(read_bytes_per_s=8.0 * MIB),
            changed=self._changed,
        )

    def _changed(self) -> None:
        self.changes += 1

    @property
    def seen(self) -> WorldSnapshot:
        return self.warmer.seen(self.world)

    def order(self, name: ModelId, *instead_of: ModelId, node: NodeId = NODE) -> None:
        self.warmer.order(
            WarmFile(
                action_id="a1", model=name, node=node, reason=Reason.WARM, instead_of=instead_of
            )
        )

    def cached_mb(self, name: ModelId) -> int:
        cached = self.seen.warmth[name].cached_bytes
        assert cached is not None
        return cached // MIB


@pytest.fixture
def house() -> House:
    return House(model(A), model(B), model(C))


async def test_sizes_and_what_is_cached_are_seen_of_models_whose_files_are_there(house: House):
    house.cache.cached["b.gguf"] = 10 * MIB
    await house.warmer.look()
    warmth = house.seen.warmth
    assert set(warmth) == {A, B}
    assert warmth[B].weights_bytes == 40 * MIB
    assert house.cached_mb(B) == 10
    assert house.seen.hosts == {NODE: MEMORY}
    assert house.changes == 1


async def test_a_node_may_leave_while_it_is_looked_at(house: House):
    caches = {NODE: house.cache, OTHER: house.cache}
    warmer = Warmer(
        clock=house.clock,
        caches=caches,
        profiles=lambda: house.profiles,
        world=lambda: house.world,
        config=None,
        changed=lambda: None,
    )
    await warmer.look()
    assert set(warmer.seen(house.world).hosts) == {NODE, OTHER}

    async def leaves() -> HostMemory:
        caches.pop(OTHER, None)
        return MEMORY

    house.cache.host = leaves  # type: ignore[method-assign] # it stands for a slow look
    await warmer.look()
    assert set(warmer.seen(house.world).hosts) == {NODE}


async def test_it_looks_again_and_forgets_what_is_gone(house: House):
    task = asyncio.create_task(house.warmer.run())
    await house.clock.advance(0.0)
    assert set(house.seen.warmth) == {A, B}
    del house.profiles[A]
    house.world = world(model(A), model(C))
    await house.clock.advance(LOOK_S)
    assert dict(house.seen.warmth) == {}
    task.cancel()


async def test_a_models_files_are_read_at_the_rate_that_is_configured(house: House):
    await house.warmer.look()
    house.order(A)
    assert house.seen.warmth[A].is_warming
    await house.clock.advance(5.0)
    assert house.cached_mb(A) == 0  # it was not looked at yet
    assert 30 * MIB < house.cache.cached["a.gguf"] < 60 * MIB
    await house.clock.advance(6.0)
    assert house.cached_mb(A) == 80
    warmth = house.seen.warmth[A]
    assert (warmth.is_warming, warmth.warmed_at_s is not None) == (False, True)


async def test_one_at_a_time_on_a_node_and_nothing_that_is_not_known(house: House):
    await house.warmer.look()
    house.order(A)
    house.order(B)
    house.order(C)
    house.order(A, node=OTHER)
    assert [house.seen.warmth[name].is_warming for name in (A, B)] == [True, False]
    await house.warmer.close()


async def test_files_go_for_those_that_are_read(house: House):
    house.cache.cached["b.gguf"] = 40 * MIB
    await house.warmer.look()
    house.order(A, B)
    await house.clock.advance(0.0)
    assert house.cached_mb(B) == 0
    await house.warmer.close()
    assert not house.seen.warmth[A].is_warming


async def test_a_load_goes_before_reading_ahead(house: House):
    await house.warmer.look()
    house.order(A)
    await house.clock.advance(2.0)
    house.world = world(model(A), model(B), model(C, Residency.LOADING))
    await house.clock.advance(2.0)
    assert not house.seen.warmth[A].is_warming
    assert 0 < house.cached_mb(A) < 80


async def test_switched_off_it_stops(house: House):
    await house.warmer.look()
    house.order(A)
    await house.clock.advance(2.0)
    house.warmer.reconfigure(None)
    await house.clock.advance(2.0)
    assert 0 < house.cached_mb(A) < 80
    house.order(A)
    await house.clock.advance(2.0)
    assert house.cached_mb(A) < 80


async def test_a_disk_that_fails_is_told_once_and_stops_nothing(house: House, capsys):
    await house.warmer.look()
    house.cache.fault = Transient("a.gguf: Input/output error")
    for _ in range(2):
        house.order(A)
        await house.clock.advance(1.0)
        assert not house.seen.warmth[A].is_warming
    house.cache.fault = None
    house.order(A)
    await house.clock.advance(20.0)
    assert house.cached_mb(A) == 80


async def test_a_model_that_goes_while_it_is_read_is_forgotten(house: House):
    await house.warmer.look()
    house.order(A)
    del house.profiles[A]
    house.world = world(model(B))
    await house.warmer.look()
    await house.clock.advance(20.0)
    assert A not in house.seen.warmth


async def test_where_nobody_tells_of_the_host_nothing_is_told(house: House):
    house.cache.memory = None
    await house.warmer.look()
    assert house.seen.hosts == {}


async def test_without_a_models_folder_there_is_nothing_to_do():
    house = House(model(A), caches=False)
    await house.warmer.run()
    assert house.seen is house.world


async def test_a_model_on_another_node_is_not_looked_for_here():
    house = House(model(A), model(B, node=OTHER))
    await house.warmer.look()
    assert set(house.seen.warmth) == {A}
