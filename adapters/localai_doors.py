"""The controller's ways to the LocalAIs: those that are configured, and instances of a name."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

from adapters.localai import LocalAIServer
from adapters.localai_discovery import NameWatch, Resolve, addresses, found_in, url_at
from adapters.localai_model_files import LocalAIModelFiles
from adapters.page_cache import PageCache, is_supported
from contracts.config import NodeConfig
from contracts.departed import Servers
from contracts.ids import ModelId, NodeId
from contracts.ports import Clock

_JITTER = 0.1

SightT = TypeVar("SightT")


class LocalAIDoors(Generic[SightT]):
    """Opens and closes them; ``controller.ports.NodeDoors``.

    Parameters
    ----------
    make_sight : callable
        Who sees the machine of a node.

    Attributes
    ----------
    servers, files, sights, weights : mapping
        By node; they change as nodes come and go.
    are_moving : bool
        Whether some are instances of a name: only then nodes come and go.
    """

    def __init__(
        self,
        nodes: tuple[NodeConfig, ...],
        clock: Clock,
        make_sight: Callable[[NodeConfig], SightT],
        *,
        resolve: Resolve = addresses,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._make_sight = make_sight
        self._chance = chance
        self.servers = Servers()
        self._servers: dict[NodeId, LocalAIServer] = {}
        self.files: dict[NodeId, LocalAIModelFiles] = {}
        self.sights: dict[NodeId, SightT] = {}
        self.weights: dict[NodeId, PageCache] = {}
        self._nodes: dict[NodeId, NodeConfig] = {}
        self._closing: set[asyncio.Task[None]] = set()
        for node in nodes:
            self._make(node)
        self.found_at_start: Mapping[NodeId, str] = found_in(nodes)
        self._template = next((node for node in nodes if node.behind), None)
        self.are_moving = self._template is not None
        self._watch = NameWatch(self._template.behind if self._template else "", clock, resolve)

    @property
    def opened(self) -> Collection[NodeId]:
        """The instances that are open now."""
        return tuple(name for name, node in self._nodes.items() if node.behind)

    async def look(self) -> tuple[str, ...] | None:
        """Addresses behind the name; None: nobody could tell."""
        return await self._watch.look()

    def note_look(self, took_s: float | None) -> None:
        """Every instance tells how long looking it up took."""
        for node in self.opened if took_s is not None else ():
            self._servers[node].remark((), took_s or 0.0)

    def jitter(self) -> float:
        """A tenth more or less."""
        return 1.0 - _JITTER + 2.0 * _JITTER * self._chance()

    def open(self, node: NodeId, address: str) -> None:
        """Make the ways to an instance; nothing happens where they are there."""
        template = self._template
        if template is None or node in self._nodes:
            return
        url = url_at(template.behind, address)
        self._make(replace(template, node=node, url=url, primary=False))

    def close(self, node: NodeId) -> None:
        """Let go of them; what still runs there is given up."""
        if self._nodes.pop(node, None) is None:
            return
        del self.servers[node], self.sights[node]
        self.weights.pop(node, None)
        loop = asyncio.get_running_loop()
        for closing in (self._servers.pop(node).close(), self.files.pop(node).close()):
            task = loop.create_task(closing)
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def readdress(self, nodes: tuple[NodeConfig, ...]) -> None:
        """The same LocalAIs as they are configured now: other addresses, or other keys."""
        self._template = next((node for node in nodes if node.behind), None)
        configured = {node.node: node for node in nodes if not node.behind}
        for name, before in tuple(self._nodes.items()):
            node = configured.get(name, before)
            if before.behind and self._template is not None:
                node = replace(self._template, node=name, url=before.url, primary=before.primary)
            self._nodes[name] = node
            self._servers[name].readdress(node)
            self.files[name].readdress(node)

    async def read_profile(self, node: NodeId, model: ModelId) -> str | None:
        """What a model's file on a node says for us; see ``LocalAIServer.read_profile``."""
        server = self._servers.get(node)
        return None if server is None else await server.read_profile(model)

    async def aclose(self) -> None:
        """Close all connections."""
        for server in self._servers.values():
            await server.close()
        for folder in self.files.values():
            await folder.close()
        await asyncio.gather(*self._closing)

    def _make(self, node: NodeConfig) -> None:
        name = node.node
        self._nodes[name] = node
        self._servers[name] = self.servers[name] = LocalAIServer(node, self._clock)
        self.files[name] = LocalAIModelFiles(node, self._clock)
        self.sights[name] = self._make_sight(node)
        if node.models_path is not None and is_supported():
            self.weights[name] = PageCache(Path(node.models_path), self._clock)
