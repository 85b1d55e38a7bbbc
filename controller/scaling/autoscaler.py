"""Looks at every target, has the rule decide, orders, and says what was decided.

Runs beside the leader, in the process that leads, and sees what everybody sees: the snapshot of
the world and the forecasts that are published. It orders nothing while it does not lead, and what
it does not know it leaves as it is.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from contracts.errors import HeadstartError
from contracts.plan import Decision, Outcome
from contracts.ports import Clock, DecisionJournal, ForecastStore, SnapshotStore
from contracts.reasons import Reason
from contracts.scaling import (
    Replicas,
    Scaler,
    ScalerKind,
    Scaling,
    ScalingState,
    ScalingStore,
    ScalingTarget,
)
from controller.scaling.need import need_of
from controller.scaling.rule import may_order, refused, rescaled, taken

_log = structlog.get_logger("headstart.controller")

LOOK_S = 10.0
"""Between two looks: a third of the average that they feed."""

STALE_S = 30.0
"""A world that is older says nothing about now, and nothing is decided from it."""

POLICY = "autoscale"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPorts:
    """What it reaches the rest through. ``scalers``: those that are set up, by kind."""

    clock: Clock
    snapshots: SnapshotStore
    forecasts: ForecastStore
    journal: DecisionJournal
    store: ScalingStore
    scalers: Mapping[ScalerKind, Scaler]


class Autoscaler:
    """All targets of one controller."""

    def __init__(
        self,
        targets: tuple[ScalingTarget, ...],
        ports: ScalingPorts,
        *,
        leads: Callable[[], bool],
    ) -> None:
        self._targets = targets
        self._ports = ports
        self._leads = leads
        self._states: dict[str, ScalingState] = {}
        self._said: dict[str, tuple[int, Reason]] = {}
        self._faults: dict[str, str] = {}

    def reconfigure(self, targets: tuple[ScalingTarget, ...]) -> None:
        """Other targets from now on; those that stay keep what they remember."""
        self._targets = targets
        names = {target.name for target in targets}
        self._states = {name: state for name, state in self._states.items() if name in names}

    async def run(self) -> None:
        """Look, wait, look again; until cancelled."""
        while True:
            if self._targets and self._leads():
                await self.look()
            else:
                # Whoever leads next may have ordered something else.
                self._states.clear()
            await self._ports.clock.sleep(LOOK_S)

    async def look(self) -> None:
        """Decide for every target once."""
        try:
            world = await self._ports.snapshots.world()
            forecasts = await self._ports.forecasts.get_all()
            before = await self._ports.store.scalings()
        except HeadstartError as error:
            self._tell_fault("", error)
            return
        self._tell_fault("", None)
        now_s = self._ports.clock.now_s()
        if world is None or now_s - world.taken_at_s > STALE_S:
            return
        for target in self._targets:
            if target.name not in self._states:
                last = before.get(target.name)
                self._states[target.name] = ScalingState(
                    ordered=None if last is None else last.replicas
                )
            try:
                replicas = await self._replicas(target)
                need = need_of(target, world, forecasts)
                state = self._states[target.name]
                scaling, state = rescaled(target, replicas, need, state, now_s)
                if target.kind in self._ports.scalers:
                    scaling = replace(scaling, current=replicas.ready)
                if scaling.changed and not target.dry_run and world.mode.orders:
                    scaling, state = await self._carry_out(target, scaling, state)
                self._states[target.name] = state
                await self._say(scaling)
            except HeadstartError as error:
                self._tell_fault(target.name, error)
            else:
                self._tell_fault(target.name, None)

    async def _replicas(self, target: ScalingTarget) -> Replicas:
        scaler = self._ports.scalers.get(target.kind)
        if scaler is None:
            # Whoever reads the number makes it so; we are not told when.
            ordered = self._states[target.name].ordered
            return Replicas(ready=target.smallest if ordered is None else ordered)
        return await scaler.replicas(target.place or target.name)

    async def _carry_out(
        self, target: ScalingTarget, scaling: Scaling, state: ScalingState
    ) -> tuple[Scaling, ScalingState]:
        scaler = self._ports.scalers.get(target.kind)
        if scaler is not None:
            if not may_order(state, scaling.at_s):
                return replace(scaling, reason=Reason.SCALER_FAILED), state
            try:
                await scaler.scale(target.place or target.name, scaling.replicas)
            except HeadstartError as error:
                _log.warning("scaling_refused", target=target.name, error=str(error))
                failed = replace(scaling, reason=Reason.SCALER_FAILED)
                return failed, refused(state, scaling.at_s)
            _log.info(
                "scaled",
                target=target.name,
                replicas=scaling.replicas,
                reason=scaling.reason.value,
            )
        return scaling, taken(state, scaling.replicas)

    async def _say(self, scaling: Scaling) -> None:
        """The newest answer always, a decision when it is another one than before."""
        await self._ports.store.put_scaling(scaling)
        said = (scaling.replicas, scaling.reason)
        if self._said.get(scaling.target) == said:
            return
        decision = Decision(
            policy=POLICY,
            subject=scaling.target,
            outcome=Outcome.CHANGE if scaling.changed else Outcome.HOLD,
            reason=scaling.reason,
            evidence=(("replicas", scaling.replicas), *scaling.evidence.items()),
            decision_id=f"s{secrets.token_hex(8)}",
            made_at_s=scaling.at_s,
        )
        await self._ports.journal.append((decision,))
        self._said[scaling.target] = said

    def _tell_fault(self, target: str, error: HeadstartError | None) -> None:
        """One line when a fault begins, one when it ends."""
        if error is None:
            if self._faults.pop(target, None) is not None:
                _log.info("autoscaling_goes_on", target=target or "all")
        elif target not in self._faults:
            self._faults[target] = str(error)
            _log.warning("autoscaling_held", target=target or "all", error=str(error))
