"""``weighted-score``: the victim score that schedulers of this kind usually come with.

Of all idle models the one with the highest score goes first::

    score(m) = ALPHA x priority(m) + BETA / frequency(m) - GAMMA x reload cost(m)

Each part lies between 0 and 1 among the idle models of the moment. ``priority`` is 0 for
realtime, 1/2 for batch and 1 for background, as the model's SLA says (realtime without one).
``1 / frequency`` is the fewest requests of any of them over its own, so that it is 1 for the
least asked for. The reload cost is its load time times its SLA's weight, over the greatest.

It looks back alone, counts without fading and does not know sizes: here to be compared with.
"""

from __future__ import annotations

from contracts.events import PriorityClass
from contracts.reasons import Reason
from contracts.world import ModelStatus
from controller.policies.base import Context, Victim, expected_load_s
from controller.policies.recency import Lru

ALPHA = BETA = GAMMA = 1.0
"""Equal: nothing says that one part should count for more, and it is not tuned."""

_PRIORITY = {
    PriorityClass.REALTIME: 0.0,
    PriorityClass.BATCH: 0.5,
    PriorityClass.BACKGROUND: 1.0,
}


class WeightedScore(Lru):
    """Evict the highest score first; ties by name."""

    name = "weighted-score"

    def victims(self, context: Context, idle: tuple[ModelStatus, ...]) -> tuple[Victim, ...]:
        """Highest score first."""
        if not idle:
            return ()
        fewest = min(_requests(status) for status in idle)
        dearest_s = max(_reload_s(context, status) for status in idle)
        judged = [_victim(context, status, fewest, dearest_s) for status in idle]
        return tuple(sorted(judged, key=lambda victim: (victim.loss, victim.model)))


def _victim(context: Context, status: ModelStatus, fewest: int, dearest_s: float) -> Victim:
    sla = context.world.slas.get(status.model)
    priority = 0.0 if sla is None else _PRIORITY[sla.priority]
    rarity = fewest / _requests(status)
    cost = _reload_s(context, status) / dearest_s if dearest_s > 0.0 else 0.0
    score = ALPHA * priority + BETA * rarity - GAMMA * cost
    return Victim(
        model=status.model,
        freed_bytes=status.occupied_bytes,
        loss=-score,
        reason=Reason.HIGHEST_SCORE,
        evidence=(
            ("score", round(score, 4)),
            ("priority", priority),
            ("rarity", round(rarity, 4)),
            ("reload_cost", round(cost, 4)),
        ),
    )


def _requests(status: ModelStatus) -> int:
    """Requests so far; one that was loaded ahead of its first counts as asked for once."""
    return max(1, status.arrivals)


def _reload_s(context: Context, status: ModelStatus) -> float:
    return expected_load_s(status) * context.weight(status.model)
