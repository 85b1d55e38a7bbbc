"""The LocalAIs of a configuration: the ways to each, whose address may change under them."""

from __future__ import annotations

from adapters.localai import LocalAIServer
from adapters.upstream_replaceable import ReplaceableUpstream
from adapters.upstreams import open_upstream
from contracts.config import GatewayConfig, NodeConfig, is_same_fleet
from contracts.ids import NodeId
from contracts.ports import Clock


class LocalAIFleet:
    """Data paths and management of all nodes, by name."""

    def __init__(self, config: GatewayConfig, clock: Clock) -> None:
        self._config = config
        self.upstreams = {
            node.node: ReplaceableUpstream(
                open_upstream(node.url, connect_timeout_s=config.connect_timeout_s)
            )
            for node in config.nodes
        }
        self.servers = {node.node: LocalAIServer(node, clock) for node in config.nodes}

    def readdress(self, config: GatewayConfig) -> bool:
        """Go to where the same nodes are now; False, and nothing changes, where they are others.

        What runs goes on where it began. Raises Invalid for an address that is none.
        """
        if not is_same_fleet(self._config.nodes, config.nodes):
            return False
        limit_s = config.connect_timeout_s
        fresh = {
            after.node: open_upstream(after.url, connect_timeout_s=limit_s)
            for before, after in zip(self._config.nodes, config.nodes, strict=True)
            if before.url != after.url or limit_s != self._config.connect_timeout_s
        }
        for name, upstream in fresh.items():
            self.upstreams[name].replace(upstream)
        readdress(self.servers, config.nodes)
        self._config = config
        return True

    async def close(self) -> None:
        """Close the management's connections; the data paths are closed by who used them."""
        for server in self.servers.values():
            await server.close()


def readdress(servers: dict[NodeId, LocalAIServer], nodes: tuple[NodeConfig, ...]) -> None:
    """Let the servers of these names be called where they are now, with their keys of now."""
    for node in nodes:
        servers[node.node].readdress(node)
