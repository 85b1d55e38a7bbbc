"""The LocalAIs of now: those of the configuration, and instances that the controller tells of.

Where the configuration has a name that stands for several, the routing table says which there
are. Without a controller the last of them stay, and before the first table those that were found
at the start. One that has left gets nothing more; what runs there ends first, then its ways are
closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from api.gateway.live import LiveConfig
from contracts.config import GatewayConfig, NodeConfig
from contracts.departed import Servers
from contracts.ids import NodeId
from contracts.ports import Clock, ModelServer
from contracts.routing import RoutingTable

_log = structlog.get_logger("gateway")

MAX_INSTANCES = 1_000
QUIET_S = 10.0
"""A node that has left keeps its ways for so long at least: lists and UI calls are not counted."""

_LOOK_S = 1.0
LONGEST_S = 3_600.0


class FleetDoors(Protocol):
    """Opens and closes the ways to nodes; the gateway's ports by node change with them."""

    def at(self, template: NodeConfig, node: NodeId, address: str) -> NodeConfig:
        """An instance of the name that ``template`` was found behind."""
        ...

    def open(self, node: NodeConfig) -> None:
        """Make the ways to a node; nothing happens where they are there."""
        ...

    async def shut(self, node: NodeId) -> None:
        """Let go of them; what still runs there is cut."""
        ...


class Fleet:
    """Who is there, for everybody that sends something.

    Parameters
    ----------
    servers : mapping
        Management of every node, also of those that are about to be shut.

    Attributes
    ----------
    nodes : mapping
        Those that something may be sent to.
    servers : Servers
        Their management; of another node every call fails.
    joined, left : int
        Instances that came and went since the gateway began.
    in_flight : callable
        Requests that this gateway has on a node.
    on_left : list of callable
        Told each node that has left, and told again when its ways are shut.
    """

    def __init__(
        self,
        config: LiveConfig,
        servers: Mapping[NodeId, ModelServer],
        doors: FleetDoors | None,
        clock: Clock,
    ) -> None:
        self._live = config
        self._all_servers = servers
        self._doors = doors
        self._clock = clock
        self.nodes: dict[NodeId, NodeConfig] = {one.node: one for one in config.now.nodes}
        self.servers = Servers(servers)
        self.primary = _primary_of(config.now.nodes)
        self.joined = 0
        self.left = 0
        self.left_out = 0
        self.in_flight: Callable[[NodeId], int] = lambda _node: 0
        self.on_left: list[Callable[[NodeId], None]] = []
        self._shutting: dict[NodeId, asyncio.Task[None]] = {}

    @property
    def is_moving(self) -> bool:
        """Whether nodes may come and go."""
        return self._doors is not None and any(one.behind for one in self._live.now.nodes)

    def reload(self, config: GatewayConfig) -> None:
        """The configuration has changed, of the same LocalAIs."""
        for one in config.nodes:
            if one.node in self.nodes:
                self.nodes[one.node] = one

    def follow(self, table: RoutingTable) -> None:
        """Have the instances that a table names, where there are any."""
        template = next((one for one in self._live.now.nodes if one.behind), None)
        told = {name: route.address for name, route in table.nodes.items() if route.address}
        if template is None or self._doors is None or not told:
            return
        for name, address in sorted(told.items()):
            if name not in self.nodes:
                self._join(self._doors.at(template, name, address))
        for name in [name for name, one in self.nodes.items() if one.behind]:
            if name not in table.nodes:
                self._leave(name)
        if table.primary in self.nodes:
            self.primary = table.primary

    async def close(self) -> None:
        """The gateway stops: nobody waits for what has left any more."""
        for task in self._shutting.values():
            task.cancel()
        await asyncio.gather(*self._shutting.values(), return_exceptions=True)

    def _join(self, node: NodeConfig) -> None:
        assert self._doors is not None
        if len(self.nodes) >= MAX_INSTANCES:
            self.left_out += 1
            return
        shutting = self._shutting.pop(node.node, None)
        if shutting is not None:
            shutting.cancel()
        self._doors.open(node)
        self.nodes[node.node] = node
        self.servers[node.node] = self._all_servers[node.node]
        self.joined += 1
        _log.info("backend_joined", node=node.node, url=node.url)

    def _leave(self, node: NodeId) -> None:
        del self.nodes[node]
        self.servers.pop(node, None)
        self.left += 1
        if self.primary == node:
            self.primary = min(self.nodes, default=node)
        in_flight = self.in_flight(node)
        _log.info("backend_left", node=node, in_flight=in_flight)
        self._tell(node)
        self._shutting[node] = asyncio.get_running_loop().create_task(self._shut(node))

    async def _shut(self, node: NodeId) -> None:
        assert self._doors is not None
        since_s = self._clock.monotonic_s()
        await self._clock.sleep(QUIET_S)
        while self.in_flight(node) and self._clock.monotonic_s() - since_s < LONGEST_S:
            await self._clock.sleep(_LOOK_S)
        self._shutting.pop(node, None)
        self._tell(node)
        await self._doors.shut(node)

    def _tell(self, node: NodeId) -> None:
        for told in self.on_left:
            told(node)


def _primary_of(nodes: tuple[NodeConfig, ...]) -> NodeId:
    return next((node for node in nodes if node.primary), nodes[0]).node
