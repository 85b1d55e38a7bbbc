"""Nodes by name where one may leave at any moment: what is asked of it from then on fails."""

from __future__ import annotations

from collections.abc import Mapping

from contracts.errors import Transient
from contracts.ids import ModelId, NodeId
from contracts.node_facts import NodeFacts
from contracts.ports import ModelServer, NodeReport


class Servers(dict[NodeId, ModelServer]):
    """``servers[node]`` is there for every name; one that has left, or never was, fails."""

    def __missing__(self, node: NodeId) -> ModelServer:
        """Not kept: a node that comes back is asked again."""
        return Departed(node)


class Departed:
    """``ModelServer`` of a node that is not there any more."""

    def __init__(self, node: NodeId) -> None:
        self._node = node

    def _gone(self) -> Transient:
        return Transient(f"{self._node} has left")

    async def models(self) -> tuple[ModelId, ...]:  # noqa: D102 - the port says what it does
        raise self._gone()

    async def aliases(self) -> Mapping[str, ModelId]:  # noqa: D102
        raise self._gone()

    async def load(self, model: ModelId) -> None:  # noqa: ARG002, D102
        raise self._gone()

    async def unload(self, model: ModelId) -> None:  # noqa: ARG002, D102
        raise self._gone()

    async def is_busy(self, model: ModelId) -> bool | None:  # noqa: ARG002, D102
        raise self._gone()

    async def report(self) -> NodeReport:  # noqa: D102
        raise self._gone()

    async def facts(self, *, fresh: bool = False) -> NodeFacts:  # noqa: ARG002, D102
        raise self._gone()

    async def started_at_s(self) -> float | None:  # noqa: D102
        raise self._gone()

    async def warm(self, model: ModelId, *, thorough: bool = False) -> bool:  # noqa: ARG002, D102
        raise self._gone()

    async def estimate_footprint_bytes(self, model: ModelId) -> int | None:  # noqa: ARG002, D102
        raise self._gone()
