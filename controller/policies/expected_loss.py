"""The default policy ``headstart``: keep what would be missed most, load what soon will be.

The cost of a cold start is the time its caller waits for the load, times the model's weight::

    cost(m)     = load_s(m) x weight(m)
    loss(m)     = P(request for m within the window) x cost(m)        if m is evicted now
    gain(m)     = P(request in [load_s - target, load_s + horizon]) x cost(m)   if m is prefetched

Victims go in the order of loss per byte. A request that comes before ``load_s - target`` has
passed would still find the model loading for longer than its caller accepts, so it is no gain.
Worked example: load 8 s, target 2 s, a request due in 20 s with P = 0.5: gain 0.5 x 8 = 4 s.

Without any usable forecast the order is LRU. Where only some models have one, the others
are judged by P(use within w | idle for a) = w / (w + a), which is what "no idea" says: a model
idle for a is as likely to be used before as after another a (Lindy, power law of exponent 1).

``prefetch_price`` keeps prefetching honest whatever the calibration: a wasted prefetch raises
it, a used one lowers it, so that the share of wasted ones settles at the target.
"""

from __future__ import annotations

import math
from dataclasses import replace

from contracts.plan import PlannerState
from contracts.reasons import Reason
from contracts.world import ModelStatus
from controller.policies.base import Candidate, Context, Victim, expected_load_s, idle_s
from controller.policies.recency import Lru, by_recency

PRICE_STEP = 0.5
"""A wasted prefetch multiplies the price by exp(step x (1 - target)), a used one by
exp(-step x target): in balance exactly when the wasted share is the target, whatever the
scale of gains is. Half, so that a handful of wasted ones in a row triples it."""

FIRST_PRICE_S = 0.5
MIN_PRICE_S = 0.05
MAX_PRICE_S = 60.0
"""A price that no gain reaches, and one that hardly any gain misses."""

PRICE_HALF_LIFE_S = 86400.0
"""The price fades over a day, so that prefetching which has rested is tried again."""


def faded_price(state: PlannerState, now_s: float) -> float:
    """The price of a prefetch now."""
    if state.prefetch_price <= 0.0:
        return FIRST_PRICE_S
    age_s = max(0.0, now_s - state.priced_at_s)
    return max(MIN_PRICE_S, state.prefetch_price * math.exp2(-age_s / PRICE_HALF_LIFE_S))


class ExpectedLoss(Lru):
    """Residency by expected waiting time."""

    name = "headstart"

    def victims(self, context: Context, idle: tuple[ModelStatus, ...]) -> tuple[Victim, ...]:
        """Least loss per byte first; LRU where no forecast may be used."""
        if not any(context.next_use(status.model) for status in idle):
            return by_recency(context, idle, Reason.LEAST_RECENTLY_USED)
        judged = [self._victim(context, status) for status in idle]
        return tuple(sorted(judged, key=lambda v: (v.loss / max(1, v.freed_bytes), v.model)))

    def candidates(self, context: Context, cold: tuple[ModelStatus, ...]) -> tuple[Candidate, ...]:
        """Cold models with a usable forecast, greatest gain first."""
        found = []
        for status in cold:
            curve = context.next_use(status.model)
            if curve is not None:
                load_s = expected_load_s(status)
                start_s = max(0.0, load_s - context.target_s(status.model))
                probability = curve.probability_between(
                    context.now_s, start_s, load_s + context.config.prefetch_horizon_s
                )
                gain = probability * load_s * context.weight(status.model)
                found.append(
                    Candidate(
                        model=status.model,
                        gain=gain,
                        evidence=(
                            ("probability", round(probability, 4)),
                            ("load_s", round(load_s, 2)),
                            ("gain_s", round(gain, 3)),
                        ),
                    )
                )
        return tuple(sorted(found, key=lambda c: (-c.gain, c.model)))

    def prefetch_loss(self, context: Context, victims: tuple[Victim, ...]) -> float:
        """Victims' loss x margin + price."""
        loss = sum(victim.loss for victim in victims)
        return loss * context.config.prefetch_margin + faded_price(context.state, context.now_s)

    def learn(self, context: Context) -> PlannerState:
        """Move the price by the prefetches that were settled since the last run."""
        state, tally = context.state, context.world.prefetches
        used = tally.used - state.settled_used
        wasted = tally.wasted - state.settled_wasted
        if not used and not wasted:
            return state
        target = context.config.prefetch_waste_target
        step = PRICE_STEP * (max(0, wasted) * (1.0 - target) - max(0, used) * target)
        price = faded_price(state, context.now_s) * math.exp(min(20.0, step))
        return replace(
            state,
            prefetch_price=min(MAX_PRICE_S, max(MIN_PRICE_S, price)),
            priced_at_s=context.now_s,
            settled_used=tally.used,
            settled_wasted=tally.wasted,
        )

    def _victim(self, context: Context, status: ModelStatus) -> Victim:
        window_s = context.config.window_s
        curve = context.next_use(status.model)
        if curve is None:
            probability = window_s / (window_s + idle_s(context, status))
        else:
            probability = curve.probability_between(context.now_s, 0.0, window_s)
        load_s = expected_load_s(status)
        loss = probability * load_s * context.weight(status.model)
        return Victim(
            model=status.model,
            freed_bytes=status.occupied_bytes,
            loss=loss,
            reason=Reason.LEAST_EXPECTED_LOSS,
            evidence=(
                ("probability", round(probability, 4)),
                ("load_s", round(load_s, 2)),
                ("loss_s", round(loss, 4)),
                ("freed_mb", status.occupied_bytes // 1024**2),
            ),
        )
