"""What people set and what the controller last saw, in plain Redis keys and hashes."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec
import redis.asyncio

from adapters.codec import decode_as, encode
from adapters.redis_client import key_for, mapped_errors, text
from adapters.redis_fence import FENCE_LUA, check_fence
from contracts.events import PriorityClass
from contracts.ids import ModelId
from contracts.limits import ClassLimits
from contracts.redis_keys import (
    BASELINES,
    GPU_YIELD,
    LIMITS,
    MODE,
    PINS,
    ROUTING,
    ROUTING_TOKEN,
    SLAS,
    WORLD,
)
from contracts.routing import RoutingTable
from contracts.world import GpuYield, Mode, Sla, WorldSnapshot

_GPU_YIELD_DECODER = msgspec.json.Decoder(GpuYield)
_LIMITS_DECODER = msgspec.json.Decoder(ClassLimits)

_PUT_ROUTING_LUA = (
    FENCE_LUA
    + """
if is_fenced_off(KEYS[2], ARGV[1]) then return -1 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""
)


class RedisControlStore:
    """``ControlStore``: a hash of SLAs, a set of pins, the mode. ``skipped`` as elsewhere."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._key = partial(key_for, client)
        self.skipped = 0

    async def slas(self) -> Mapping[ModelId, Sla]:
        with mapped_errors("read SLAs"):
            stored = await self._client.hgetall(self._key(SLAS))
        slas = [decode_as(data, Sla) for data in stored.values()]
        self.skipped += slas.count(None)
        return {sla.model: sla for sla in slas if sla is not None}

    async def put_sla(self, sla: Sla) -> None:
        with mapped_errors("store an SLA"):
            await self._client.hset(self._key(SLAS), sla.model, encode(sla))

    async def delete_sla(self, model: ModelId) -> bool:
        with mapped_errors("delete an SLA"):
            return bool(await self._client.hdel(self._key(SLAS), model))

    async def pins(self) -> frozenset[ModelId]:
        with mapped_errors("read pins"):
            stored = await self._client.smembers(self._key(PINS))
        return frozenset(ModelId(text(name)) for name in stored)

    async def set_pin(self, model: ModelId, *, pinned: bool) -> None:
        with mapped_errors("store a pin"):
            if pinned:
                await self._client.sadd(self._key(PINS), model)
            else:
                await self._client.srem(self._key(PINS), model)

    async def mode(self) -> Mode | None:
        with mapped_errors("read the mode"):
            stored = await self._client.get(self._key(MODE))
        if stored is None:
            return None
        try:
            return Mode(text(stored))
        except ValueError:
            self.skipped += 1
            return None

    async def set_mode(self, mode: Mode) -> None:
        with mapped_errors("store the mode"):
            await self._client.set(self._key(MODE), mode.value)

    async def gpu_yield(self) -> GpuYield | None:
        with mapped_errors("read who has the GPU"):
            stored = await self._client.get(self._key(GPU_YIELD))
        try:
            return None if stored is None else _GPU_YIELD_DECODER.decode(stored)
        except msgspec.MsgspecError:
            self.skipped += 1
            return None

    async def set_gpu_yield(self, wish: GpuYield | None) -> None:
        with mapped_errors("store who has the GPU"):
            if wish is None:
                await self._client.delete(self._key(GPU_YIELD))
            else:
                await self._client.set(self._key(GPU_YIELD), msgspec.json.encode(wish))


class RedisSnapshotStore:
    """``SnapshotStore``: the newest world and routing table, each in a key of its own.

    A table with a smaller fencing token than the stored one is refused in the server, so a
    controller that lost its lease without noticing cannot put an old table back.
    """

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._key = partial(key_for, client)
        self._put_routing = client.register_script(_PUT_ROUTING_LUA)
        self.skipped = 0

    async def put_world(self, world: WorldSnapshot) -> None:
        with mapped_errors("store the world"):
            await self._client.set(self._key(WORLD), encode(world))

    async def world(self) -> WorldSnapshot | None:
        with mapped_errors("read the world"):
            stored = await self._client.get(self._key(WORLD))
        world = decode_as(stored, WorldSnapshot)
        self.skipped += stored is not None and world is None
        return world

    async def put_routing(self, table: RoutingTable) -> None:
        with mapped_errors("store the routing table"):
            reply = await self._put_routing(
                keys=[self._key(ROUTING), self._key(ROUTING_TOKEN)],
                args=[table.token, encode(table)],
            )
        check_fence(reply, "store the routing table")

    async def routing(self) -> RoutingTable | None:
        with mapped_errors("read the routing table"):
            stored = await self._client.get(self._key(ROUTING))
        table = decode_as(stored, RoutingTable)
        self.skipped += stored is not None and table is None
        return table

    async def put_baseline(self, name: str, figures: Mapping[str, float]) -> None:
        with mapped_errors("store a baseline"):
            await self._client.hset(self._key(BASELINES), name, msgspec.json.encode(dict(figures)))

    async def baselines(self) -> Mapping[str, Mapping[str, float]]:
        with mapped_errors("read baselines"):
            stored = await self._client.hgetall(self._key(BASELINES))
        figures: dict[str, Mapping[str, float]] = {}
        for name, data in stored.items():
            try:
                figures[text(name)] = msgspec.json.decode(data, type=dict[str, float])
            except msgspec.MsgspecError:
                self.skipped += 1
        return figures

    async def put_limits(self, limits: ClassLimits) -> None:
        with mapped_errors("store limits"):
            await self._client.hset(
                self._key(LIMITS), limits.priority.value, msgspec.json.encode(limits)
            )

    async def limits(self, priority: PriorityClass) -> ClassLimits | None:
        with mapped_errors("read limits"):
            stored = await self._client.hget(self._key(LIMITS), priority.value)
        try:
            return None if stored is None else _LIMITS_DECODER.decode(stored)
        except msgspec.MsgspecError:
            self.skipped += 1
            return None
