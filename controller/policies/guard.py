"""Plain rules that live beside the policy on the same requests, so that it is never worse for long.

Each is a ghost: it holds what its rule would hold, loads as fast and as many at once as we do,
and moves no bytes. Of each request it is known whether it was late with us and whether it would
have been late with the ghost. When that speaks for a ghost by more than chance, its rule is
followed for a while; then the policy is tried again, and if it loses again, for twice as long.

A ghost knows nothing of models that are busy, which flatters it a little: it errs towards rules.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from contracts.ids import ModelId
from contracts.plan import Ghost, Guard
from contracts.world import ModelStatus, Residency
from controller.memory import usable_bytes
from controller.policies.base import Context, expected_load_s

LRU, GDSF = "lru", "gdsf"
RULES = (LRU, GDSF)

MEMORY_REQUESTS = 1000.0
"""Older requests fade: a few hundred tell a difference of a few in a hundred from chance."""
STANDARD_ERRORS = 3.0
"""One in a thousand by chance: the policy is not left for a bad quarter of an hour."""
LEAST_LEAD = 10.0
"""So many more requests in time it must be as well: fewer are nobody's reason to switch."""
FIRST_FOLLOW_S = 3600.0
LONGEST_FOLLOW_S = 86_400.0
"""An hour of a plain rule costs little; a policy that keeps losing is tried once a day."""

_MIB = 1024**2


def watched(context: Context, guard: Guard, fresh: Sequence[tuple[ModelStatus, int]]) -> Guard:
    """After the requests that came since the last run: how many for each model.

    Without a known size of memory, nothing can be said and nothing is followed.
    """
    now_s = context.now_s
    usable = usable_bytes(context.world.nodes[context.node], context.config)
    if usable is None or not fresh:
        return _released(guard, now_s)
    ghosts = {rule: guard.ghosts.get(rule, Ghost()) for rule in RULES}
    for status, came in fresh:
        ours = _late(context, status, _ready_at_s(status))
        for rule in RULES:
            ghosts[rule] = _asked(context, rule, ghosts[rule], status, usable)
            theirs = _late(context, status, ghosts[rule].ready_at_s.get(status.model, math.inf))
            ghosts[rule] = _scored(ghosts[rule], came * (ours - theirs))
    return _followed(_released(replace(guard, ghosts=ghosts), now_s), now_s)


def followed_values(guard: Guard) -> Mapping[ModelId, float]:
    """By what the rule that is followed evicts, least first."""
    return guard.ghosts[guard.following].value


def _ready_at_s(status: ModelStatus) -> float:
    """When our own copy can serve, as far as it is known; never of one that is absent."""
    if status.residency in (Residency.HOT, Residency.DRAINING):
        return -math.inf
    if status.residency is Residency.LOADING:
        return status.residency_since_s + expected_load_s(status)
    return math.inf


def _late(context: Context, status: ModelStatus, ready_at_s: float) -> float:
    late = ready_at_s - context.now_s > context.target_s(status.model)
    return context.weight(status.model) if late else 0.0


def _asked(context: Context, rule: str, ghost: Ghost, status: ModelStatus, usable: int) -> Ghost:
    """The ghost after one more request: the model is there, or its load begins."""
    model, now_s, load_s = status.model, context.now_s, expected_load_s(status)
    if model not in ghost.ready_at_s:
        ghost = _loaded(context, ghost, status, usable)
    if rule == LRU:
        return replace(ghost, value={**ghost.value, model: now_s})
    count = ghost.counts.get(model, 0) + 1
    size_mb = max(1.0, (status.footprint_bytes or _MIB) / _MIB)
    return replace(
        ghost,
        counts={**ghost.counts, model: count},
        value={**ghost.value, model: ghost.inflation + count * load_s / size_mb},
    )


def _loaded(context: Context, ghost: Ghost, status: ModelStatus, usable: int) -> Ghost:
    """With ``status`` loading, in the room of those of least value that are not loading."""
    now_s, sizes = context.now_s, context.world.models
    held = dict(ghost.ready_at_s)
    free = usable - sum(_bytes(sizes.get(model)) for model in held) - _bytes(status)
    inflation = ghost.inflation
    by_value = [(ghost.value[model], model) for model in held] if free < 0 else []
    heapq.heapify(by_value)
    while free < 0 and by_value:
        _, model = heapq.heappop(by_value)
        if held[model] <= now_s:
            free += _bytes(sizes.get(model))
            inflation = ghost.value[model]
            del held[model]
    ends_s = sorted(ghost.load_ends_s) or [now_s] * context.config.parallel_loads
    if free >= 0:
        held[status.model] = ends_s[0] = max(now_s, ends_s[0]) + expected_load_s(status)
    return replace(ghost, ready_at_s=held, inflation=inflation, load_ends_s=tuple(ends_s))


def _bytes(status: ModelStatus | None) -> int:
    return 0 if status is None else status.footprint_bytes or 0


def _scored(ghost: Ghost, difference: float) -> Ghost:
    fade = 1.0 - 1.0 / MEMORY_REQUESTS
    return replace(
        ghost,
        lead=fade * ghost.lead + difference,
        spread=fade * ghost.spread + difference * difference,
    )


def _released(guard: Guard, now_s: float) -> Guard:
    """Back to the policy when its time is over; it starts with a clean record."""
    if not guard.following or now_s < guard.until_s:
        return guard
    ghosts = {rule: replace(g, lead=0.0, spread=0.0) for rule, g in guard.ghosts.items()}
    return replace(guard, ghosts=ghosts, following="")


def _followed(guard: Guard, now_s: float) -> Guard:
    """The rule that clearly does better, if the policy is followed now and there is one."""
    best = max(guard.ghosts, key=lambda rule: guard.ghosts[rule].lead)
    ghost = guard.ghosts[best]
    sure = ghost.lead > STANDARD_ERRORS * math.sqrt(ghost.spread) and ghost.lead >= LEAST_LEAD
    if guard.following or not sure:
        return guard
    # After a day of doing well what was lost before is forgiven.
    forgiven = now_s > guard.until_s + LONGEST_FOLLOW_S
    follow_s = FIRST_FOLLOW_S if forgiven else max(FIRST_FOLLOW_S, guard.follow_s)
    return replace(
        guard,
        following=best,
        until_s=now_s + follow_s,
        follow_s=min(LONGEST_FOLLOW_S, 2.0 * follow_s),
        tripped=guard.tripped + 1,
    )
