"""Rules that look at the last use alone: ``lru``, ``localai-lru`` and ``idle-timeout``."""

from __future__ import annotations

from contracts.plan import PlannerState
from contracts.reasons import Reason
from contracts.world import ModelStatus
from controller.memory import Room, usable_bytes
from controller.policies.base import Candidate, Context, Swap, Victim, idle_s


class Lru:
    """Memory-aware LRU: least recently used first, as many as the bytes need."""

    name = "lru"

    def victims(self, context: Context, idle: tuple[ModelStatus, ...]) -> tuple[Victim, ...]:
        """Longest idle first."""
        return by_recency(context, idle, Reason.LEAST_RECENTLY_USED)

    def candidates(self, context: Context, cold: tuple[ModelStatus, ...]) -> tuple[Candidate, ...]:  # noqa: ARG002 - a rule never looks ahead
        """None: a rule that looks back loads nothing ahead."""
        return ()

    def swap(
        self,
        context: Context,  # noqa: ARG002 - never asked
        candidate: Candidate,  # noqa: ARG002
        idle: tuple[ModelStatus, ...],  # noqa: ARG002
        room: Room,  # noqa: ARG002
    ) -> Swap | None:
        """None: nothing is loaded ahead."""
        return None

    def expired(self, context: Context, idle: tuple[ModelStatus, ...]) -> tuple[Victim, ...]:  # noqa: ARG002 - nothing expires
        """None: a model stays while its room is not needed."""
        return ()

    def model_limit(self, context: Context) -> int | None:  # noqa: ARG002 - bytes are the bound
        """None: bytes are the bound."""
        return None

    def learn(self, context: Context) -> PlannerState:
        """Nothing."""
        return context.state


class LocalAILru(Lru):
    """LocalAI's own rule, for comparison: so many models as always fit, whatever their size."""

    name = "localai-lru"

    def model_limit(self, context: Context) -> int | None:
        """How many of the largest models fit together; None where sizes or room are unknown."""
        usable = usable_bytes(context.world.nodes[context.node], context.config)
        sizes = [status.footprint_bytes for status in context.models]
        known = sorted((size for size in sizes if size is not None), reverse=True)
        if usable is None or len(known) < len(sizes) or not known:
            return None
        count = 0
        for size in known:
            usable -= size
            if usable < 0:
                break
            count += 1
        return max(1, count)


class IdleTimeout(Lru):
    """``lru``, and a model goes when nobody used it for ``idle_timeout_s``."""

    name = "idle-timeout"

    def expired(self, context: Context, idle: tuple[ModelStatus, ...]) -> tuple[Victim, ...]:
        """Those idle for at least the idle time."""
        over = tuple(s for s in idle if idle_s(context, s) >= context.config.idle_timeout_s)
        return by_recency(context, over, Reason.IDLE_TIMEOUT)


def by_recency(
    context: Context, idle: tuple[ModelStatus, ...], reason: Reason
) -> tuple[Victim, ...]:
    """Longest idle first, with the idle time as evidence."""
    ordered = sorted(idle, key=lambda s: (-idle_s(context, s), s.model))
    return tuple(
        Victim(
            model=status.model,
            freed_bytes=status.occupied_bytes,
            loss=0.0,
            reason=reason,
            evidence=(("idle_s", round(idle_s(context, status), 1)),),
        )
        for status in ordered
    )
