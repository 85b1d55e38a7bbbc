"""LocalAI's busy watchdog and its memory reclaimer, which end what runs behind our back."""

from __future__ import annotations

from contracts.ports import Clock
from emulator.instance import Instance, Refusal
from simulator.localai_effects import StopCause


class Watchdogs:
    """Looks now and then, as long as one of the two is on.

    Parameters
    ----------
    busy_s : float or None
        ``--watchdog-busy-timeout``: a model that works on one request for longer is ended.
    reclaim_over : float or None
        ``--memory-reclaimer-threshold``: above this share of the memory the model that was
        used longest ago is stopped, one at each look.
    """

    def __init__(
        self,
        instance: Instance,
        clock: Clock,
        *,
        busy_s: float | None,
        reclaim_over: float | None,
    ) -> None:
        self._instance = instance
        self._clock = clock
        self._busy_s = busy_s
        self._reclaim_over = reclaim_over

    @property
    def runs(self) -> bool:
        """Whether there is anything to do."""
        return self._busy_s is not None or self._reclaim_over is not None

    async def run(self) -> None:
        """Until cancelled."""
        while self.runs:
            await self._clock.sleep(self._instance.machine.config.watchdog_interval_s)
            await self.look()

    async def look(self) -> None:
        """One look."""
        if self._busy_s is not None:
            for model, busy_s in self._instance.busy().items():
                if busy_s > self._busy_s:
                    # The process is ended, whatever it does, and taken off the list.
                    self._instance.crash(model)
                    await self._stop(model)
        if self._reclaim_over is not None and self._used() > self._reclaim_over:
            victim = self._longest_unused()
            if victim is not None:
                await self._stop(victim)

    def _used(self) -> float:
        cluster = self._instance.machine.cluster
        if not cluster.capacity_bytes:
            return 0.0
        return (cluster.used_bytes + cluster.others_bytes) / cluster.capacity_bytes

    def _longest_unused(self) -> str | None:
        machine = self._instance.machine
        idle = [
            model
            for model in machine.cluster.resident()
            if machine.cluster.is_idle(model) and not machine.is_pinned(model)
        ]
        return min(idle, key=lambda model: machine.cluster.last_used_s(model) or 0.0, default=None)

    async def _stop(self, model: str) -> None:
        try:
            await self._instance.stop(model, StopCause.IDLE)
        except Refusal:
            return  # gone, or busy again
