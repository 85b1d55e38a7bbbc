"""A gateway's ways to the LocalAIs, which may change their addresses, come and go under them."""

from __future__ import annotations

from dataclasses import replace

from adapters.localai import LocalAIServer
from adapters.localai_discovery import url_at
from adapters.upstream_replaceable import ReplaceableUpstream
from adapters.upstreams import open_upstream
from contracts.config import GatewayConfig, NodeConfig, is_same_fleet
from contracts.ids import NodeId
from contracts.ports import Clock


class LocalAIFleet:
    """Data paths and management of all nodes, by name.

    Attributes
    ----------
    upstreams, servers : mapping
        By node; those of instances that have left are gone from them.
    """

    def __init__(self, config: GatewayConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._nodes: dict[NodeId, NodeConfig] = {}
        self.upstreams: dict[NodeId, ReplaceableUpstream] = {}
        self.servers: dict[NodeId, LocalAIServer] = {}
        for node in config.nodes:
            self.open(node)

    def at(self, template: NodeConfig, node: NodeId, address: str) -> NodeConfig:
        """An instance of the name that ``template`` was found behind."""
        return replace(template, node=node, url=url_at(template.behind, address), primary=False)

    def open(self, node: NodeConfig) -> None:
        """Make the ways to a node; nothing happens where they are there."""
        name = node.node
        if name in self._nodes:
            return
        self._nodes[name] = node
        limit_s = self._config.connect_timeout_s
        way = ReplaceableUpstream(open_upstream(node.url, connect_timeout_s=limit_s))
        self.upstreams[name], self.servers[name] = way, LocalAIServer(node, self._clock)

    async def shut(self, node: NodeId) -> None:
        """Let go of them; what still runs there is cut."""
        if self._nodes.pop(node, None) is None:
            return
        way, server = self.upstreams.pop(node), self.servers.pop(node)
        await way.close()
        await server.close()

    def readdress(self, config: GatewayConfig) -> bool:
        """Go to where the same nodes are now; False, and nothing changes, where they are others.

        What runs goes on where it began. Raises Invalid for an address that is none.
        """
        if not is_same_fleet(self._config.nodes, config.nodes):
            return False
        is_slower = config.connect_timeout_s != self._config.connect_timeout_s
        nodes = {name: _as_configured(node, config.nodes) for name, node in self._nodes.items()}
        fresh = {
            name: open_upstream(node.url, connect_timeout_s=config.connect_timeout_s)
            for name, node in nodes.items()
            if is_slower or node.url != self._nodes[name].url
        }
        for name, upstream in fresh.items():
            self.upstreams[name].replace(upstream)
        for name, node in nodes.items():
            self.servers[name].readdress(node)
        self._nodes, self._config = nodes, config
        return True

    async def close(self) -> None:
        """Close the management's connections; the data paths are closed by who used them."""
        for server in self.servers.values():
            await server.close()


def _as_configured(node: NodeConfig, nodes: tuple[NodeConfig, ...]) -> NodeConfig:
    """A node with what is configured of it, or of the name that it was found behind, now."""
    for one in nodes:
        if one.node == node.node:
            return one
    for one in nodes:
        if one.behind and one.behind == node.behind:
            return replace(one, node=node.node, url=node.url, primary=node.primary)
    return node
