"""What all nodes list, put together."""

from __future__ import annotations

from collections.abc import Mapping

from contracts.config import ModelProfile, NodeConfig
from contracts.ids import ModelId, NodeId
from controller.catalogue import merged_profiles
from controller.observer import Catalogue


class Catalogues:
    """The last catalogue of each node."""

    def __init__(self, nodes: tuple[NodeConfig, ...]) -> None:
        self._accelerators = {node.node: node.accelerator for node in nodes}
        self._behind = next((node.accelerator for node in nodes if node.behind), "")
        self._catalogues: dict[NodeId, Catalogue] = {}

    def take(
        self, catalogue: Catalogue, configured: Mapping[ModelId, ModelProfile]
    ) -> dict[ModelId, ModelProfile]:
        """A node lists its models: what is declared of all that any of them has."""
        self._catalogues[catalogue.node] = catalogue
        found = {name: p for one in self._catalogues.values() for name, p in one.profiles.items()}
        return merged_profiles(found, configured)

    def close(self, node: NodeId) -> None:
        """It has left, and lists nothing any more."""
        self._catalogues.pop(node, None)

    @property
    def all(self) -> tuple[Catalogue, ...]:
        """The last of each node."""
        return tuple(self._catalogues.values())

    @property
    def aliases(self) -> dict[str, ModelId]:
        """Model by alias."""
        return {
            alias: model
            for one in self._catalogues.values()
            for alias, model in one.aliases.items()
        }

    def accelerator(self, node: NodeId) -> str:
        """What its models run on; empty: not told."""
        return self._accelerators.get(node, self._behind)
