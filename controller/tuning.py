"""A term of leadership whose configuration may change while it lasts."""

from __future__ import annotations

from contracts.config import ControllerConfig
from controller.leader import Leader


class TunableLeader(Leader):
    """Plans by the newest configuration; orders that are under way keep what they began with."""

    def reconfigure(self, config: ControllerConfig) -> None:
        """Plan by ``config`` from now on: its planner, profiles, mode and time limits."""
        self._config = config
        self._reconciler.reconfigure(config)
        self._bulletin.reconfigure(config)
        self._ahead.reconfigure(config)
        self._instances.reconfigure(config.discovery)
        # As if LocalAI had just listed its models: profiles, targets and pins follow from that.
        self._ladders.reconfigure(config)
        for catalogue in self._catalogues.all:
            self._listed(catalogue)
        self._wake.set()
