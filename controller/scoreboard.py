"""How many requests met a cold model, beside what LocalAI's own LRU would have had: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from contracts.config import PlannerConfig
from contracts.events import RequestDispatched
from contracts.forecasts import Forecasts
from contracts.ids import NodeId
from contracts.plan import PlannerState
from contracts.world import WorldSnapshot
from controller.policies.base import Context, expected_load_s
from controller.policies.recency import LocalAILru
from controller.shadow import ShadowLru

LIMIT_S = 10.0
"""How long a limit holds that was reckoned for a node: models come and go seldom."""

OURS = "headstart"
LOCALAI = "localai-lru"
_NO_FORECASTS: Forecasts = {}
_LOCALAI_LRU = LocalAILru()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoreboard:
    """Counts since the first start, of the requests that both sides can be judged by.

    One for a model that nobody lists is cold on neither side, and would make ours look better.
    """

    dispatched_requests: int = 0
    cold_requests: int = 0
    shadow: ShadowLru = field(default_factory=ShadowLru)
    localai_limit: int | None = None
    limits: Mapping[NodeId, tuple[float, int | None]] = field(default_factory=dict, compare=False)
    """Of each node when its limit was reckoned and what it is: all its models are looked at."""

    @classmethod
    def resumed(cls, baselines: Mapping[str, Mapping[str, float]]) -> Scoreboard:
        """Going on from published figures; the shadow's residents start empty."""
        ours, theirs = baselines.get(OURS, {}), baselines.get(LOCALAI, {})
        limit = theirs.get("model_limit")
        return cls(
            localai_limit=None if limit is None else int(limit),
            dispatched_requests=int(ours.get("arrivals", 0)),
            cold_requests=int(ours.get("cold_starts", 0)),
            shadow=ShadowLru(
                arrivals=int(theirs.get("arrivals", 0)),
                cold_starts=int(theirs.get("cold_starts", 0)),
                loads=int(theirs.get("loads", 0)),
            ),
        )

    def dispatched(
        self, event: RequestDispatched, world: WorldSnapshot, config: PlannerConfig
    ) -> Scoreboard:
        """What really happened, by the gateway's own word, and the shadow's turn at the same."""
        status = world.models.get(event.model) if event.model is not None else None
        if status is None:
            return self
        limits = self._limits(world, status.node, config)
        limit = limits[status.node][1]
        if limit is None:
            return replace(self, limits=limits)
        shadow = self.shadow.arrived(
            status.model,
            event.at_s - event.queue_wait_s,
            load_s=expected_load_s(status),
            limit=limit,
        )
        return Scoreboard(
            dispatched_requests=self.dispatched_requests + 1,
            cold_requests=self.cold_requests + event.cold,
            shadow=shadow,
            localai_limit=limit,
            limits=limits,
        )

    def _limits(
        self, world: WorldSnapshot, node: NodeId, config: PlannerConfig
    ) -> Mapping[NodeId, tuple[float, int | None]]:
        known = self.limits.get(node)
        if known is not None and 0.0 <= world.taken_at_s - known[0] < LIMIT_S:
            return self.limits
        there = {name: one for name, one in self.limits.items() if name in world.nodes}
        return {**there, node: (world.taken_at_s, _localai_limit(world, node, config))}

    def figures(self) -> Mapping[str, Mapping[str, float]]:
        """By policy, for the snapshot store; ``model_limit`` is what LocalAI would be told."""
        limit = {} if self.localai_limit is None else {"model_limit": float(self.localai_limit)}
        return {
            OURS: {"arrivals": self.dispatched_requests, "cold_starts": self.cold_requests},
            LOCALAI: {**self.shadow.figures(), **limit},
        }


def _localai_limit(world: WorldSnapshot, node: NodeId, config: PlannerConfig) -> int | None:
    context = Context(
        now_s=world.taken_at_s,
        node=node,
        world=world,
        forecasts=_NO_FORECASTS,
        state=PlannerState(),
        config=replace(config, reserve_ratio=0.0),  # LocalAI keeps no reserve
        models=world.on_node(node),
    )
    return _LOCALAI_LRU.model_limit(context)
