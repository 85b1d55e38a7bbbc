"""Greedy-Dual-Size-Frequency (Cherkasova, HP Labs TR 1998-69): H = L + count x load_s / size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from contracts.ids import ModelId
from contracts.plan import PlannerState
from contracts.reasons import Reason
from contracts.world import ModelStatus
from controller.policies.base import Context, Victim, expected_load_s
from controller.policies.recency import Lru

_MIB = 1024**2


def by_value(value: Mapping[ModelId, float], idle: tuple[ModelStatus, ...]) -> tuple[Victim, ...]:
    """Least value first, with the value as loss; one that has none has the least."""
    return tuple(
        Victim(
            model=status.model,
            freed_bytes=status.occupied_bytes,
            loss=value.get(status.model, 0.0),
            reason=Reason.LEAST_VALUE_PER_BYTE,
            evidence=(("value", value.get(status.model, 0.0)),),
        )
        for status in sorted(idle, key=lambda s: (value.get(s.model, 0.0), s.model))
    )


class Gdsf(Lru):
    """Evict the least H first; L becomes the H of the last victim, so that old counts fade."""

    name = "gdsf"

    def victims(self, context: Context, idle: tuple[ModelStatus, ...]) -> tuple[Victim, ...]:
        """Least H first."""
        return by_value(context.state.gdsf_value, idle)

    def learn(self, context: Context) -> PlannerState:
        """Raise H of each model that was asked for since the last run."""
        state = context.state
        values, seen = dict(state.gdsf_value), dict(state.seen_arrivals)
        for status in context.models:
            if status.arrivals != seen.get(status.model, 0):
                size_mb = max(1.0, (status.footprint_bytes or _MIB) / _MIB)
                values[status.model] = (
                    state.gdsf_inflation + status.arrivals * expected_load_s(status) / size_mb
                )
                seen[status.model] = status.arrivals
        if seen == state.seen_arrivals:
            return state
        return replace(state, gdsf_value=values, seen_arrivals=seen)
