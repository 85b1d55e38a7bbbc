"""How much our orders may fill: pure arithmetic over one node."""

from __future__ import annotations

from dataclasses import dataclass

from contracts.config import PlannerConfig
from contracts.ids import NodeId
from contracts.world import (
    OCCUPIES_MEMORY,
    ModelStatus,
    NodeStatus,
    Residency,
    WorldSnapshot,
)

_GOING = frozenset({Residency.DRAINING, Residency.UNLOADING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What one node holds and may hold.

    Attributes
    ----------
    usable_bytes : int or None
        The most that our models may take together; None: nobody knows, so bytes bound nothing.
    occupied_bytes : int
        What they take now, loading and draining ones included.
    residents, model_limit :
        The same as a count, against LocalAI's own limit where one is set.
    loading : int
        Loads that run or wait for their victims.
    draining : int
        Models that are about to go: they still count as occupied.
    """

    usable_bytes: int | None
    occupied_bytes: int
    residents: int
    model_limit: int | None
    loading: int
    draining: int = 0

    def missing_bytes(self, wanted_bytes: int) -> int:
        """How much must be freed before ``wanted_bytes`` fit; 0 when they fit."""
        if self.usable_bytes is None:
            return 0
        return max(0, self.occupied_bytes + wanted_bytes - self.usable_bytes)

    def missing_slots(self) -> int:
        """How many models must go before one more may be resident."""
        return 0 if self.model_limit is None else max(0, self.residents + 1 - self.model_limit)

    def never_fits(self, wanted_bytes: int) -> bool:
        """Whether even an empty node is too small."""
        return self.usable_bytes is not None and wanted_bytes > self.usable_bytes


def room(
    world: WorldSnapshot,
    node: NodeId,
    config: PlannerConfig,
    *,
    model_limit: int | None = None,
    models: tuple[ModelStatus, ...] | None = None,
) -> Room:
    """The room of ``node``; ``model_limit`` is a policy's own bound beside LocalAI's.

    ``models`` are those of the node where the caller has them at hand.
    """
    status = world.nodes[node]
    if models is None:
        models = world.on_node(node)
    present = [model for model in models if model.residency in OCCUPIES_MEMORY]
    limits = [limit for limit in (status.model_limit, model_limit) if limit is not None]
    return Room(
        usable_bytes=usable_bytes(status, config),
        occupied_bytes=sum(model.occupied_bytes for model in present),
        residents=len(present),
        model_limit=min(limits, default=None),
        loading=sum(model.residency is Residency.LOADING for model in present),
        draining=sum(model.residency in _GOING for model in present),
    )


def usable_bytes(node: NodeStatus, config: PlannerConfig) -> int | None:
    """(what the probe shows less what others use) x (1 - reserve), at most the configured bound.

    >>> node = NodeStatus(node=NodeId("a"), memory_total_bytes=1000, used_by_others_bytes=200)
    >>> usable_bytes(node, PlannerConfig(reserve_ratio=0.25))
    600
    """
    if node.memory_total_bytes is None:
        return config.budget_bytes
    free = max(0, node.memory_total_bytes - node.used_by_others_bytes)
    usable = int(free * (1.0 - config.reserve_ratio))
    return usable if config.budget_bytes is None else min(usable, config.budget_bytes)
