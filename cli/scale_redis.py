"""What a real server takes for what ``bench scale`` wrote: its memory and its CPU, by use.

A server of our own is started in a folder of its own, filled through the adapters that a
deployment uses, and asked: ``MEMORY USAGE`` of each key, and what its process took of a core.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from adapters.codec import decode
from adapters.embedded_server import provided_server
from adapters.redis_client import connect
from adapters.redis_events import RedisEventLog
from adapters.redis_forecasts import RedisForecastStore
from adapters.redis_history import RedisHistoryStore
from adapters.redis_mailbox import to_controller, to_gateways
from adapters.redis_stores import RedisSnapshotStore
from adapters.redis_streams import LEAST_ENTRIES
from cli.scale_run import Sample
from contracts.forecasts import ModelForecast
from contracts.history import HISTORY_RINGS, HistoryBucket, HistoryPage
from contracts.messages import GatewayBeat
from contracts.redis_keys import EVENTS, FORECASTS, ROUTING, TO_GATEWAYS, WORLD, history_ring
from contracts.routing import RoutingTable
from contracts.world import WorldSnapshot
from simulator.scale_figures import READERS, RedisCost

READ_AT_ONCE = 500
TURNS = 10
TURNS_BYTES = 50_000_000
"""A record that is so large is written fewer times: the server has a bound."""
HISTORY_MODELS = 20


async def measured(sample: Sample, *, gateways: int) -> RedisCost:
    """Fill a server with ``sample`` and ask it."""
    with tempfile.TemporaryDirectory(prefix="headstart-scale-") as folder:
        async with provided_server(None, Path(folder)) as url:
            client = connect(url)
            try:
                return await _Server(client).measured(sample, gateways)
            finally:
                await client.aclose()


class _Server:
    def __init__(self, client: Any) -> None:
        self._client = client
        self._snapshots = RedisSnapshotStore(client)

    async def measured(self, sample: Sample, gateways: int) -> RedisCost:
        forecasts = tuple(f for f in map(decode, sample.forecasts) if isinstance(f, ModelForecast))
        world, table = decode(sample.world), decode(sample.table)
        assert isinstance(world, WorldSnapshot)
        assert isinstance(table, RoutingTable)
        log = RedisEventLog(self._client)
        events: Any = tuple(map(decode, sample.events))
        count, models = len(events), max(1, len(forecasts))
        written_us = await self._us(lambda: log.append(events))
        read_us = await self._us(lambda: self._read_all(log))
        forecast_us = await self._us(lambda: self._forecasts(forecasts))
        worlds, tables = _turns(sample.world), _turns(sample.table)
        world_us = await self._us(lambda: self._world(world, worlds))
        table_us = await self._us(lambda: self._table(table, gateways, tables))
        beat_us = await self._us(lambda: self._beats(sample.beats, gateways))
        return RedisCost(
            bytes_per_event=await self._size(EVENTS) / count,
            bytes_per_forecast=await self._size(FORECASTS) / models,
            bytes_per_model_history=await self._history(forecasts),
            world_bytes=await self._size(WORLD),
            routing_bytes=await self._size(ROUTING),
            tables_bytes=await self._bounded_tables(len(sample.table), tables),
            write_event_us=written_us / count,
            read_event_us=read_us / count / READERS,
            forecast_us=forecast_us / models,
            world_us=world_us / worlds,
            table_us=table_us / tables,
            beat_us=beat_us / TURNS / max(1, len(sample.beats)),
        )

    async def _forecasts(self, forecasts: tuple[ModelForecast, ...]) -> None:
        store = RedisForecastStore(self._client)
        place, _ = await store.updates("$", block_s=0.0)
        await store.put(forecasts)
        for _ in range(2):  # controller and control API
            await store.updates(place, block_s=0.0)

    async def _world(self, world: WorldSnapshot, turns: int) -> None:
        for _ in range(turns):
            await self._snapshots.put_world(world)
            await self._snapshots.world()

    async def _table(self, table: RoutingTable, gateways: int, turns: int) -> None:
        mailbox = to_gateways(self._client)
        for _ in range(turns):
            await self._snapshots.put_routing(table)
            place, _ = await mailbox.receive("$", block_s=0.0)
            await mailbox.send(table)
            for _ in range(gateways):
                await mailbox.receive(place, block_s=0.0)
            await self._snapshots.routing()

    async def _beats(self, beats: list[GatewayBeat], gateways: int) -> None:
        inbox = to_controller(self._client)
        for _ in range(TURNS):
            place, _ = await inbox.receive("$", block_s=0.0)
            for one in beats:
                await inbox.send(one)
            for _ in range(1 + gateways):  # the controller, and gateways that overhear
                await inbox.receive(place, block_s=0.0)

    async def _read_all(self, log: RedisEventLog) -> None:
        for _ in range(READERS):
            place = "0"
            while entries := await log.read_after(place, count=READ_AT_ONCE):
                place = entries[-1].entry_id

    async def _history(self, forecasts: tuple[ModelForecast, ...]) -> float:
        """Bytes of one model whose rings are full."""
        store = RedisHistoryStore(self._client)
        models = [forecast.model for forecast in forecasts[:HISTORY_MODELS]]
        for model in models:
            pages = tuple(
                HistoryPage(
                    model=model,
                    width_s=width_s,
                    buckets=tuple(HistoryBucket(number=n, arrivals=1) for n in range(slots)),
                )
                for width_s, slots in HISTORY_RINGS.items()
            )
            await store.write(pages, place="0-1")
        sizes = [await self._size(history_ring(w, m)) for m in models for w in HISTORY_RINGS]
        return sum(sizes) / max(1, len(models))

    async def _bounded_tables(self, table_bytes: int, turns: int) -> float:
        """The mailbox of gateways keeps tables up to a bound of its own."""
        one = await self._size(TO_GATEWAYS) / turns
        return one * max(LEAST_ENTRIES, min(10_000, 16 * 1024**2 // max(1, table_bytes)))

    async def _size(self, key: str) -> float:
        return float(await self._client.memory_usage(key, samples=0) or 0)

    async def _us(self, work: Callable[[], Awaitable[None]]) -> float:
        """CPU microseconds of the server for what ``work`` asks of it."""
        before = await self._cpu_s()
        await work()
        return 1e6 * (await self._cpu_s() - before)

    async def _cpu_s(self) -> float:
        told = await self._client.info("cpu")
        return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])


def _turns(record: bytes) -> int:
    return max(1, min(TURNS, TURNS_BYTES // max(1, len(record))))
