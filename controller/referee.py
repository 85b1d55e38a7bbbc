"""Who decides in which mode, and who would have done better: pure, told by the leader.

``shadow``: every policy plays the live requests in a ghost. ``ab``: two policies take turns.
What came of it goes out as plain figures, one mapping per policy, for API and metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from contracts.config import PlannerConfig
from contracts.events import AnyEvent, RequestCompleted, RequestDispatched, RequestReceived
from contracts.forecasts import Forecasts
from contracts.ids import ModelId
from contracts.world import Mode, WorldSnapshot
from controller.policies.registry import POLICIES
from controller.rehearsal import Counts, Rehearsal
from controller.trial import Trial
from controller.verdict import Pair, Verdict, judge

SERVICE_SHARE = 0.1
"""Share of a new measurement in a model's usual service time."""

UNMEASURED_SERVICE_S = 5.0
REFRESH_S = 10.0
JUDGE_S = 30.0
"""Verdicts are drawn anew this often: two thousand draws are not for every second."""

POLICIES_IN_USE, CONFIGURED, DECIDING = "policies", "configured:", "deciding:"
"""Under this name is told which policy is configured, and which one decides now."""

SHADOW, TRIAL = "shadow:", "ab:"
"""How the names of published figures begin, beside those of real requests."""


@dataclass(slots=True)
class Referee:
    """Keeps ghosts in mode ``shadow`` and counts turns in mode ``ab``.

    Parameters
    ----------
    against : str
        The policy that takes turns with the configured one.
    slice_s : float
        How long a turn is.
    """

    against: str = "lru"
    slice_s: float = 1800.0
    _ghosts: dict[str, Rehearsal] = field(default_factory=dict)
    _trial: Trial | None = None
    _sides: tuple[str, str] = ("", "")
    _service_s: dict[ModelId, float] = field(default_factory=dict)
    _refreshed_s: float = float("-inf")
    _judged_s: float = float("-inf")
    _figures: dict[str, Mapping[str, float]] = field(default_factory=dict)

    def config(self, world: WorldSnapshot, config: PlannerConfig) -> PlannerConfig:
        """What the planner is asked with now: the configured policy, or the one in its turn."""
        if world.mode is not Mode.AB:
            return config
        policy = self._current_trial(config).policy_at(world.taken_at_s, self._sides)
        return replace(config, policy=policy)

    def heard(
        self,
        event: AnyEvent,
        world: WorldSnapshot,
        forecasts: Forecasts,
        config: PlannerConfig,
    ) -> None:
        """One event of the log, after it was folded into ``world``."""
        match event:
            case RequestCompleted(model=model) if model is not None and event.status < 400:
                if model in world.models and event.served_by is None:
                    known_s = self._service_s.get(model, event.service_s)
                    self._service_s[model] = known_s + SERVICE_SHARE * (event.service_s - known_s)
            case RequestReceived(model=model) if model is not None and model in world.models:
                if world.mode is Mode.SHADOW:
                    self._rehearse(model, event.at_s, world, forecasts, config)
            case RequestDispatched(model=model) if model is not None and model in world.models:
                if world.mode is Mode.AB:
                    sla = world.slas.get(model)
                    target_s = config.default_target_s if sla is None else sla.target_s
                    self._current_trial(config).arrived(
                        event.at_s - event.queue_wait_s, late=event.queue_wait_s > target_s
                    )
            case _:
                pass

    def figures(
        self, world: WorldSnapshot, forecasts: Forecasts, config: PlannerConfig
    ) -> Mapping[str, Mapping[str, float]]:
        """What is known by now: ``policies``, and each ``shadow:POLICY`` and ``ab:POLICY``."""
        now_s = world.taken_at_s
        deciding = self.config(world, config).policy
        self._figures[POLICIES_IN_USE] = {
            CONFIGURED + config.policy: 1.0,
            DECIDING + deciding: 1.0,
        }
        if world.mode is Mode.SHADOW:
            for ghost in self._ghosts.values():
                ghost.advance(now_s, forecasts)
        if 0.0 <= now_s - self._judged_s < JUDGE_S:
            return self._figures
        self._judged_s = now_s
        ours = self._ghosts.get(config.policy)
        for name, ghost in self._ghosts.items():
            self._figures[SHADOW + name] = _shadow_figures(ghost, ours)
        if self._trial is not None:
            self._figures[TRIAL + self._sides[1]] = _trial_figures(self._trial)
        return self._figures

    def _rehearse(
        self,
        model: ModelId,
        at_s: float,
        world: WorldSnapshot,
        forecasts: Forecasts,
        config: PlannerConfig,
    ) -> None:
        if not self._ghosts:
            self._ghosts = {name: Rehearsal(name, world, config) for name in POLICIES}
        elif not 0.0 <= world.taken_at_s - self._refreshed_s < REFRESH_S:
            for ghost in self._ghosts.values():
                ghost.refresh(world)
            self._refreshed_s = world.taken_at_s
        service_s = self._service_s.get(model, UNMEASURED_SERVICE_S)
        for ghost in self._ghosts.values():
            ghost.arrived(model, at_s, service_s=service_s, forecasts=forecasts)

    def _current_trial(self, config: PlannerConfig) -> Trial:
        sides = (config.policy, self.against)
        if self._trial is None or self._sides != sides:
            # Other sides are another trial: what was counted says nothing about them.
            self._trial, self._sides = Trial(slice_s=self.slice_s), sides
        return self._trial


def _shadow_figures(ghost: Rehearsal, ours: Rehearsal | None) -> Mapping[str, float]:
    counts = ghost.figures()
    figures: dict[str, float] = {
        "arrivals": counts.arrivals,
        "cold_starts": counts.cold,
        "late": counts.late,
        "loads": ghost.loads,
        "prefetches": ghost.prefetches,
        "left_out": ghost.left_out,
    }
    if ours is not None and ours is not ghost:
        none = Counts()
        pairs = [
            Pair(
                ours=ours.blocks.get(block, none).arrivals,
                ours_late=ours.blocks.get(block, none).late,
                theirs=theirs.arrivals,
                theirs_late=theirs.late,
            )
            for block, theirs in ghost.blocks.items()
        ]
        figures |= _verdict_figures(judge(pairs))
    return figures


def _trial_figures(trial: Trial) -> Mapping[str, float]:
    pairs = trial.pairs()
    return {
        "arrivals": sum(pair.theirs for pair in pairs),
        "late": sum(pair.theirs_late for pair in pairs),
        "our_arrivals": sum(pair.ours for pair in pairs),
        "our_late": sum(pair.ours_late for pair in pairs),
        **_verdict_figures(judge(pairs)),
    }


def _verdict_figures(verdict: Verdict | None) -> dict[str, float]:
    """Late shares and their difference; the interval where there is one."""
    if verdict is None:
        return {}
    figures: dict[str, float] = {
        "blocks": verdict.blocks,
        "our_late_ratio": verdict.ours_late_ratio,
        "late_ratio": verdict.theirs_late_ratio,
        "difference": verdict.difference,
    }
    if verdict.low is not None and verdict.high is not None and verdict.sure is not None:
        figures |= {"low": verdict.low, "high": verdict.high, "sure": verdict.sure}
    return figures
