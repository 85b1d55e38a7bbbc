"""What the leading controller leaves in the snapshot store for everybody, once a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from contracts.config import ControllerConfig
from contracts.forecasts import Forecasts
from contracts.ports import SnapshotStore
from contracts.world import WorldSnapshot
from controller.lulls import background_limits
from controller.memory import usable_bytes
from controller.outbox import Outbox


class Bulletin:
    """Queues the world, the limits of batches and the shadow policies' figures for writing."""

    def __init__(self, snapshots: SnapshotStore, outbox: Outbox, config: ControllerConfig) -> None:
        self._snapshots = snapshots
        self._outbox = outbox
        self._config = config

    def reconfigure(self, config: ControllerConfig) -> None:
        """The configuration has changed."""
        self._config = config

    def post(
        self,
        world: WorldSnapshot,
        forecasts: Forecasts,
        figures: Mapping[str, Mapping[str, float]],
    ) -> None:
        """Have all of it written; what cannot be is left out, the next is newer.

        Nodes are told with their budget, which the planner reckons for itself.
        """
        limits = background_limits(
            world, forecasts, self._config.planner, slots=self._config.batch_slots
        )
        put_world = partial(self._snapshots.put_world, self._with_budgets(world))
        self._outbox.add(put_world, latest="world")
        for one in limits:
            put_limits = partial(self._snapshots.put_limits, one)
            self._outbox.add(put_limits, latest=f"limits {one.priority}")
        for name, figures_of_one in figures.items():
            put_baseline = partial(self._snapshots.put_baseline, name, figures_of_one)
            self._outbox.add(put_baseline, latest=f"baseline {name}")

    def _with_budgets(self, world: WorldSnapshot) -> WorldSnapshot:
        planner = self._config.planner
        nodes = {
            name: replace(node, budget_bytes=usable_bytes(node, planner))
            for name, node in world.nodes.items()
        }
        return replace(world, nodes=nodes)
