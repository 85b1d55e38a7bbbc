"""The default policy ``headstart``: keep what would be missed most, load what soon will be.

Everything is counted in requests made late. A cold start makes a whole wave of them wait: the
first for the load time, those that come while it runs for half of it on average::

    cost(m)  = min(1, load_s / target_s) x (1 + wave(m)) / 2 x weight(m)
    loss(m)  = P(request for m within the window) x cost(m)          if m is evicted now
    gain(m)  = P(request in [load_s - target_s, load_s + horizon]) x cost(m)   if m is prefetched

Victims go in the order of loss per byte. A request that comes before ``load_s - target_s`` has
passed would still find the model loading for longer than its caller accepts, so it is no gain.
Of a prefetch's victims the loss counts over the load as well, and a margin is added. What is
left of the gain, per second of the load, is the value of the load slot: the best one goes first.
Worked example: load 8 s, target 2 s, waves of one request, one due in 20 s with P = 0.5:
gain 0.5; over a victim that is used with P = 0.2, at a price of 0.1: (0.5 - 0.3 - 0.1) / 8.

A prefetch also waits while waiting costs less: while its victims are likelier to be used before
the next look at the plan than a later start would be too late.

Without any usable forecast the order is LRU. A degraded forecast is its model's base rate: that
is enough to weigh a victim by, and not to load ahead by. A model without any is judged by
P(use within w | idle for a) = w / (w + a), which is what "no idea" says: a model idle for a is
as likely to be used before as after another a (Lindy, power law of exponent 1).

``prefetch_price`` keeps prefetching honest whatever the calibration: a wasted prefetch raises
it, a used one lowers it, so that the share of wasted ones settles at the target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from contracts.memory import PlaceId
from contracts.plan import Guard, PlannerState, Wave
from contracts.reasons import Reason
from contracts.world import ModelStatus
from controller.eviction import is_one_number, pick, pick_places
from controller.memory import ALL_CARDS, Room
from controller.policies.base import (
    Candidate,
    Context,
    Swap,
    Victim,
    expected_load_s,
    idle_s,
)
from controller.policies.curves import Floats
from controller.policies.gdsf import by_value
from controller.policies.guard import GDSF, LRU, followed_values, watched
from controller.policies.recency import Lru, by_recency

PRICE_STEP = 0.02
"""A wasted prefetch raises the price by step x (1 - target), a used one lowers it by step x
target: in balance exactly when the wasted share is the target. One in fifty of what a certain
request is worth, so that chance hardly moves it and a few dozen prefetches do."""

FIRST_PRICE = 0.1
"""One request made late in ten prefetches: low, since only prefetches tell what they are worth."""
MAX_PRICE = 0.9
"""Under what a certain request is worth, so that prefetching never ends for good."""

PRICE_HALF_LIFE_S = 7 * 86_400.0
"""The price fades over a week, so that prefetching which has rested is tried again."""

WAVE_SHARE = 0.2
"""Share of a new wave in the usual one: five waves tell what a model's are like."""

PATIENCE_S = 5.0
"""Whether a prefetch may wait is judged over this time: half of that to the next look."""

_SHORTEST_S = 1e-3
"""No load and no target is taken for shorter, since both divide."""

_CONSIDERED = 16
"""Candidates whose victims are looked for; the rest gain less for their time."""


def faded_price(state: PlannerState, now_s: float) -> float:
    """The price of a prefetch now."""
    if state.prefetch_price is None:
        return FIRST_PRICE
    age_s = max(0.0, now_s - state.priced_at_s)
    return state.prefetch_price * math.exp2(-age_s / PRICE_HALF_LIFE_S)


class ExpectedLoss(Lru):
    """Residency by expected requests made late."""

    name = "headstart"

    def victims(self, context: Context, idle: tuple[ModelStatus, ...]) -> tuple[Victim, ...]:
        """Least loss per byte first; LRU where no forecast may be used.

        While the guard follows a rule, that rule's order.
        """
        guard = context.state.guards.get(context.node)
        if guard is not None and guard.following == GDSF:
            return by_value(followed_values(guard), idle)
        if guard is not None and guard.following == LRU:
            return by_recency(context, idle, Reason.LEAST_RECENTLY_USED)
        odds = _odds(context, idle, context.config.window_s)
        if odds is None:
            return by_recency(context, idle, Reason.LEAST_RECENTLY_USED)
        ranked = _ranked(context, idle, odds)
        return tuple(_victim(status, chance, cost) for status, chance, cost in ranked)

    def candidates(self, context: Context, cold: tuple[ModelStatus, ...]) -> tuple[Candidate, ...]:
        """Models whose gain beats the price, most gain for their load time first.

        Where none does, the one that gains most, so that it can be said why nothing is done.
        None while the guard follows a rule.
        """
        guard = context.state.guards.get(context.node)
        if guard is not None and guard.following:
            return ()
        rows = context.board.rows([status.model for status in cold], context.forecasts)
        known = np.flatnonzero(context.board.timely(rows, context.now_s))
        if not len(known):
            return ()
        models = [cold[place] for place in known.tolist()]
        load_s, start_s, costs = _traits(context, models)
        chances = context.board.probability(
            rows[known], context.now_s, start_s, load_s + context.config.prefetch_horizon_s
        )
        gains = chances * costs
        beat = np.flatnonzero(gains > faded_price(context.state, context.now_s))
        best = (
            beat[np.argsort(-gains[beat] / load_s[beat], kind="stable")][:_CONSIDERED]
            if len(beat)
            else np.argmax(gains, keepdims=True)
        )
        return tuple(
            Candidate(
                model=models[place].model,
                gain=float(gains[place]),
                load_s=float(load_s[place]),
                evidence=(
                    ("probability", round(float(chances[place]), 4)),
                    ("load_s", round(float(load_s[place]), 2)),
                    ("gain", round(float(gains[place]), 4)),
                ),
            )
            for place in best.tolist()
        )

    def swap(
        self, context: Context, candidate: Candidate, idle: tuple[ModelStatus, ...], room: Room
    ) -> Swap | None:
        """The set that loses least, if the gain beats it and waiting does not."""
        price = faded_price(context.state, context.now_s)
        if candidate.gain <= price:
            return None
        status = context.world.models[candidate.model]
        short = room.shortage(status)
        slots_needed = room.missing_slots()
        victims: tuple[Victim, ...] = ()
        if short or slots_needed:
            within_s = candidate.load_s + context.config.prefetch_horizon_s
            odds = _odds(context, idle, within_s)
            if odds is None:
                return None
            ranked = _ranked(context, idle, odds)
            places = _going(context, room, short, slots_needed, ranked)
            if places is None:
                return None
            victims = tuple(_victim(*ranked[place]) for place in places)
            going = [ranked[place][0] for place in places]
            if context.config.just_in_time and self._may_wait(context, status, going):
                return None
        loss = sum(victim.loss for victim in victims)
        must_beat = loss * context.config.prefetch_margin + price
        if candidate.gain <= must_beat:
            return None
        surplus = (candidate.gain - must_beat) / candidate.load_s
        return Swap(victims=victims, must_beat=must_beat, surplus_per_s=surplus)

    def learn(self, context: Context) -> PlannerState:
        """Settle prefetches into the price, arrivals into waves, and both into the guard."""
        state, fresh = _priced(context), _fresh(context)
        if fresh:
            state = _counted(context, state, fresh)
        if not context.config.guard:
            return state
        guard = state.guards.get(context.node, Guard())
        after = watched(context, guard, [one for one in fresh if one[1]])
        if after is guard:
            return state
        return replace(state, guards={**state.guards, context.node: after})

    def _may_wait(
        self, context: Context, status: ModelStatus, going: Sequence[ModelStatus]
    ) -> bool:
        """Whether until the next look a later start loses less than ``going`` would serve."""
        own = context.board.rows([status.model], context.forecasts)
        _, start_s, costs = _traits(context, [status])
        missed = context.board.probability(own, context.now_s, start_s, start_s + PATIENCE_S)
        odds = _odds(context, going, PATIENCE_S)
        if odds is None:
            return False
        served = float(odds @ _traits(context, going)[2])
        return bool(missed[0] * costs[0] < served)


def _going(
    context: Context,
    room: Room,
    short: Mapping[PlaceId, int],
    slots_needed: int,
    ranked: Sequence[tuple[ModelStatus, float, float]],
) -> list[int] | None:
    losses = [chance * cost for _, chance, cost in ranked]
    whole_set = context.config.whole_sets
    statuses = [status for status, _, _ in ranked]
    if is_one_number(short, room, statuses):
        sizes = [status.occupied_bytes for status in statuses]
        missing = short.get(ALL_CARDS, 0)
        return pick(sizes, losses, missing, slots_needed, whole_set=whole_set)
    freed = [room.freed(status) for status in statuses]
    return pick_places(freed, losses, short, slots_needed, whole_set=whole_set)


def _odds(context: Context, statuses: Sequence[ModelStatus], within_s: float) -> Floats | None:
    """P(use within) of each; None where no curve of theirs tells when."""
    rows = context.board.rows([status.model for status in statuses], context.forecasts)
    if not context.board.timely(rows, context.now_s).any():
        return None
    usable = context.board.usable(rows, context.now_s)
    odds = context.board.probability(rows, context.now_s, 0.0, within_s)
    for place in np.flatnonzero(~usable).tolist():
        odds[place] = within_s / (within_s + idle_s(context, statuses[place]))
    return odds


def _traits(context: Context, models: Sequence[ModelStatus]) -> tuple[Floats, Floats, Floats]:
    """Load times, when a load that starts now is in time for a request, and costs.

    The cost of a cold start is requests made late, times what they weigh.
    """
    slas, waves = context.world.slas, context.state.waves
    load_s = np.array([max(_SHORTEST_S, expected_load_s(status)) for status in models])
    # Most deployments have no or few targets, and most models no waves to speak of.
    if slas:
        target_s = np.array([max(_SHORTEST_S, context.target_s(s.model)) for s in models])
        weight = np.array([context.weight(status.model) for status in models])
    else:
        target_s, weight = np.full(1, max(_SHORTEST_S, context.config.default_target_s)), np.ones(1)
    usual = np.array(
        [1.0 if (wave := waves.get(status.model)) is None else wave.usual for status in models]
    )
    costs = np.minimum(1.0, load_s / target_s) * (0.5 * (1.0 + usual)) * weight
    return load_s, np.maximum(load_s - target_s, 0.0), costs


def _ranked(
    context: Context, idle: Sequence[ModelStatus], odds: Floats
) -> list[tuple[ModelStatus, float, float]]:
    """Models with the chance of their use and its cost, least loss per byte first."""
    costs = _traits(context, idle)[2]
    return sorted(
        zip(idle, odds.tolist(), costs.tolist(), strict=True),
        key=lambda row: (row[1] * row[2] / max(1, row[0].occupied_bytes), row[0].model),
    )


def _victim(status: ModelStatus, chance: float, cost: float) -> Victim:
    loss = chance * cost
    return Victim(
        model=status.model,
        freed_bytes=status.occupied_bytes,
        loss=loss,
        reason=Reason.LEAST_EXPECTED_LOSS,
        evidence=(
            ("probability", round(chance, 4)),
            ("cost", round(cost, 2)),
            ("loss", round(loss, 4)),
            ("freed_mb", status.occupied_bytes // 1024**2),
        ),
    )


def _priced(context: Context) -> PlannerState:
    """Move the price by the prefetches that were settled since the last run."""
    state, tally = context.state, context.world.prefetches
    used = tally.used - state.settled_used
    wasted = tally.wasted - state.settled_wasted
    if not used and not wasted:
        return state
    target = context.config.prefetch_waste_target
    step = PRICE_STEP * (max(0, wasted) * (1.0 - target) - max(0, used) * target)
    return replace(
        state,
        prefetch_price=min(MAX_PRICE, max(0.0, faded_price(state, context.now_s) + step)),
        priced_at_s=context.now_s,
        settled_used=tally.used,
        settled_wasted=tally.wasted,
    )


def _fresh(context: Context) -> list[tuple[ModelStatus, int]]:
    """Models whose count has changed since the last run, and how many requests came for each.

    Of a model that is new to us only its first counts: what was before we looked is over.
    """
    seen = context.state.seen_arrivals
    return [
        (status, max(0, status.arrivals - seen.get(status.model, status.arrivals - first)))
        for status in context.models
        if status.arrivals != seen.get(status.model, 0)
        for first in (int(status.arrivals == 1),)
    ]


def _counted(
    context: Context, state: PlannerState, fresh: Sequence[tuple[ModelStatus, int]]
) -> PlannerState:
    """Count the requests that came into the waves of their models."""
    waves = dict(state.waves)
    for status, came in fresh:
        wave = waves.get(status.model)
        if not came:
            continue
        if wave is None:
            waves[status.model] = Wave(begun_s=context.now_s, requests=came)
        elif context.now_s > wave.begun_s + expected_load_s(status):
            usual = wave.usual + WAVE_SHARE * (wave.requests - wave.usual)
            waves[status.model] = Wave(begun_s=context.now_s, requests=came, usual=usual)
        else:
            waves[status.model] = replace(wave, requests=wave.requests + came)
    arrivals = {status.model: status.arrivals for status, _ in fresh}
    return replace(state, waves=waves, seen_arrivals={**state.seen_arrivals, **arrivals})
