"""What a leader does ahead of demand beside its plan: the agenda and the warm tier, together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from contracts.config import ControllerConfig, ModelProfile
from contracts.ids import ModelId
from contracts.world import WorldSnapshot
from controller.agenda import Agenda
from controller.ports import Ports
from controller.warmer import Warmer


class Ahead:
    """One term's agenda and warmer, on the world and the profiles of its leader."""

    def __init__(
        self,
        ports: Ports,
        config: ControllerConfig,
        *,
        world: Callable[[], WorldSnapshot],
        profiles: Callable[[], Mapping[ModelId, ModelProfile]],
        changed: Callable[[], None],
    ) -> None:
        self._config = config
        self._profiles = profiles
        self._agenda = Agenda()
        self._warmer = Warmer(
            clock=ports.clock,
            caches=ports.weights,
            profiles=profiles,
            world=world,
            config=config.planner.warm,
            changed=changed,
        )
        self.warm = self._warmer.order
        self.run = self._warmer.run
        self.close = self._warmer.close

    def reconfigure(self, config: ControllerConfig) -> None:
        """The configuration has changed."""
        self._config = config
        self._warmer.reconfigure(config.planner.warm)

    def prepared(self, world: WorldSnapshot) -> WorldSnapshot:
        """The world as the next plan shall see it."""
        return self._warmer.seen(self._agenda.prepared(world, self._profiles(), self._config))
