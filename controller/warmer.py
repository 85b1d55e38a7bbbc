"""Carries out the warm tier: sees what of each model's files is cached, and reads them ahead.

One task looks around now and then; one more for each node reads one model's files at a time.
A load goes before: while one runs on the node, reading ahead rests at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import structlog

from contracts.config import ModelProfile, WarmConfig
from contracts.errors import HeadstartError
from contracts.ids import ModelId, NodeId
from contracts.plan import WarmFile
from contracts.ports import Clock, WeightCache
from contracts.world import HostMemory, Residency, Warmth, WorldSnapshot

_log = structlog.get_logger("headstart.controller")

LOOK_S = 15.0
"""Between two looks: a load or another program may fill or empty the cache meanwhile."""

MAX_MODELS = 5_000


class Warmer:
    """What is known of files, and the tasks that read them.

    Parameters
    ----------
    caches : mapping
        The models folder of each node whose files can be found.
    profiles : callable
        What is declared of models now; ``weights`` names their files.
    world : callable
        The world as it is believed now: which models are where, and whether a load runs.
    changed : callable
        Called when something new is known.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        caches: Mapping[NodeId, WeightCache],
        profiles: Callable[[], Mapping[ModelId, ModelProfile]],
        world: Callable[[], WorldSnapshot],
        config: WarmConfig | None,
        changed: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._caches = caches
        self._profiles = profiles
        self._world = world
        self._config = config
        self._changed = changed
        self._warmth: dict[ModelId, Warmth] = {}
        self._hosts: dict[NodeId, HostMemory] = {}
        self._reading: dict[NodeId, asyncio.Task[None]] = {}
        self._faulty: set[ModelId] = set()

    def reconfigure(self, config: WarmConfig | None) -> None:
        """The configuration has changed: what is read ahead now stops where it is off."""
        self._config = config

    def seen(self, world: WorldSnapshot) -> WorldSnapshot:
        """The same, with what is known of files."""
        if not self._caches:
            return world
        hosts = {node: memory for node, memory in self._hosts.items() if node in self._caches}
        return replace(world, warmth=dict(self._warmth), hosts=hosts)

    def order(self, action: WarmFile) -> None:
        """Begin to read a model's files ahead; nothing happens while another is being read."""
        cache, known = self._caches.get(action.node), self._warmth.get(action.model)
        if cache is None or known is None or action.node in self._reading:
            return
        self._warmth[action.model] = replace(known, is_warming=True)
        task = asyncio.create_task(self._warm(action, cache))
        self._reading[action.node] = task
        task.add_done_callback(lambda _done: self._reading.pop(action.node, None))

    async def run(self) -> None:
        """Look around until cancelled."""
        if not self._caches:
            return
        while True:
            await self.look()
            await self._clock.sleep(LOOK_S)

    async def look(self) -> None:
        """See once what is cached of every model whose files can be found."""
        self._hosts = {node: one for node, one in self._hosts.items() if node in self._caches}
        for node, cache in tuple(self._caches.items()):  # nodes come and go meanwhile
            memory = await cache.host()
            if memory is not None:
                self._hosts[node] = memory
            for model in list(self._world().models)[:MAX_MODELS]:
                status = self._world().models.get(model)
                if status is not None and status.node == node:
                    await self._look_at(model, cache)
        gone = self._warmth.keys() - self._world().models.keys()
        for model in gone:
            del self._warmth[model]
        self._changed()

    async def close(self) -> None:
        """Stop reading."""
        tasks = list(self._reading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_at(self, model: ModelId, cache: WeightCache) -> None:
        files = self._files(model)
        found = await cache.look(files) if files else None
        if found is None:
            self._warmth.pop(model, None)
            return
        before = self._warmth.get(model) or Warmth(model=model, weights_bytes=0)
        self._warmth[model] = replace(
            before,
            weights_bytes=found.size_bytes,
            cached_bytes=found.cached_bytes,
            seen_at_s=self._clock.now_s(),
        )

    async def _warm(self, action: WarmFile, cache: WeightCache) -> None:
        model, began_s = action.model, self._clock.monotonic_s()
        read = 0
        try:
            for other in action.instead_of:
                await cache.drop(self._files(other))
                await self._look_at(other, cache)
            rate = self._config.read_bytes_per_s if self._config is not None else 1.0
            read = await cache.warm(
                self._files(model), bytes_per_s=rate, go_on=lambda: self._may_read(action)
            )
            await self._look_at(model, cache)
            self._faulty.discard(model)
        except HeadstartError as error:
            if model not in self._faulty:
                _log.warning("weights_not_read", model=model, error=str(error))
            self._faulty.add(model)
        finally:
            self._ended(model, whole=read > 0)
        took_s = round(self._clock.monotonic_s() - began_s, 3)
        _log.info("weights_read_ahead", model=model, node=action.node, bytes=read, took_s=took_s)
        self._changed()

    def _ended(self, model: ModelId, *, whole: bool) -> None:
        known = self._warmth.get(model)
        if known is not None:
            at_s = self._clock.now_s() if whole else known.warmed_at_s
            self._warmth[model] = replace(known, is_warming=False, warmed_at_s=at_s)

    def _may_read(self, action: WarmFile) -> bool:
        """Whether nothing goes before: no load runs on the node, and it is still configured."""
        if self._config is None:
            return False
        return not any(
            status.node == action.node and status.residency is Residency.LOADING
            for status in self._world().models.values()
        )

    def _files(self, model: ModelId) -> tuple[str, ...]:
        profile = self._profiles().get(model)
        return () if profile is None else profile.weights
