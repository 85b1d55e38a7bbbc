"""The warm tier: whose weights are kept in the page cache. Pure.

A model that is not resident is loaded from its files. Where those are in the page cache the
load is the copy to the GPU and the graph, else the disk as well. So what is likeliest to be
loaded next, and does not stay resident, is read ahead: one file set at a time, while no load
runs, within the budget, and never so much that less than ``keep_free_bytes`` is left.

What is cached counts as available, since the kernel takes it back when somebody needs it; so
the free memory is what is available less what is cached of cold models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from contracts.config import WarmConfig
from contracts.ids import ModelId
from contracts.plan import WarmFile
from contracts.reasons import Reason
from contracts.world import (
    WARM_RATIO,
    HostMemory,
    ModelStatus,
    Residency,
    Warmth,
    WorldSnapshot,
)
from controller.draft import Draft
from controller.policies.base import Context, idle_s
from controller.precedence import is_due, last_used_s

TRUST_S = 3600.0
"""What was read ahead counts as cached so long where nobody may see it."""

LEAST_PROBABILITY = 0.02
"""Less likely loads are not worth the reading."""

MARGIN = 1.25
"""What goes for another one must be that much less likely: files are not swapped for nothing."""

_MIB = 1024**2


@dataclass(frozen=True, slots=True)
class _File:
    status: ModelStatus
    warmth: Warmth
    value: float

    @property
    def cached_bytes(self) -> int:
        return self.warmth.cached_bytes or 0

    @property
    def rest_bytes(self) -> int:
        return max(0, self.warmth.weights_bytes - self.cached_bytes)


def warm(draft: Draft, context: Context) -> None:
    """Order one model's files to be read ahead, where that is worth it."""
    config, host = context.config.warm, draft.world.hosts.get(context.node)
    if config is None or host is None:
        return
    if draft.room(context.node, context.config, None).loading:
        return
    files = _files(draft, context, config)
    if any(file.warmth.is_warming for file in files):
        return
    worth = [file for file in files if file.value > 0 and not _is_warm(file, context.now_s)]
    for file in sorted(worth, key=lambda each: (-each.value, each.status.model)):
        goes = _makes_room(file, files, host, config)
        if goes is not None:
            _order(draft, context, file, goes)
            return


def _order(draft: Draft, context: Context, file: _File, goes: tuple[ModelId, ...]) -> None:
    draft.actions.append(
        WarmFile(
            action_id=f"a{draft.sequence}-{len(draft.actions)}",
            model=file.status.model,
            node=context.node,
            reason=Reason.WARM,
            instead_of=goes,
        )
    )
    instead = (("instead_of", ", ".join(goes)),) if goes else ()
    draft.note(
        file.status.model,
        Reason.WARM,
        (("value", round(file.value, 4)), ("read_mb", file.rest_bytes // _MIB), *instead),
    )


def _files(draft: Draft, context: Context, config: WarmConfig) -> list[_File]:
    """Models of the node that would have to be loaded from files that can be found."""
    world = draft.world
    cold = [
        status
        for status in draft.on_node(context.node)
        if status.residency in (Residency.COLD, Residency.FAILED)
        and status.model in world.warmth
        and world.warmth[status.model].weights_bytes
    ]
    values = _values(context, world, cold, config)
    return [
        _File(status, world.warmth[status.model], 0.0 if status.kept_out else values[status.model])
        for status in cold
    ]


def _values(
    context: Context, world: WorldSnapshot, cold: list[ModelStatus], config: WarmConfig
) -> Mapping[ModelId, float]:
    """What caching each is worth by the strategy; 0: nothing."""
    match config.strategy:
        case "lru":
            return {s.model: last_used_s(s) if s.last_used_at_s else 0.0 for s in cold}
        case "lfu":
            return {s.model: float(s.arrivals) for s in cold}
        case "fifo":
            # What came last stays longest.
            return {s.model: s.residency_since_s if s.load_cause else 0.0 for s in cold}
        case _:
            return _probabilities(context, world, cold, config.horizon_s)


def _probabilities(
    context: Context, world: WorldSnapshot, cold: list[ModelStatus], horizon_s: float
) -> Mapping[ModelId, float]:
    """P(a load within the horizon): sure where it is scheduled or asked for.

    Who is waited for and finds no room comes first: its load will begin with the reading.
    """
    rows = context.board.rows([status.model for status in cold], context.forecasts)
    usable = context.board.usable(rows, context.now_s)
    odds = context.board.probability(rows, context.now_s, 0.0, horizon_s)
    for place in np.flatnonzero(~usable).tolist():
        status = cold[place]
        odds[place] = (
            0.0
            if status.last_used_at_s is None
            else horizon_s / (horizon_s + idle_s(context, status))
        )
    asked = world.operator_loads | world.preloads
    found = {}
    for status, chance in zip(cold, odds.tolist(), strict=True):
        is_sure = status.pinned or status.model in asked or _is_coming(world, status, horizon_s)
        if status.waiting or is_sure:
            found[status.model] = 2.0 if status.waiting else 1.0
        else:
            found[status.model] = chance if chance >= LEAST_PROBABILITY else 0.0
    return found


def _is_coming(world: WorldSnapshot, status: ModelStatus, horizon_s: float) -> bool:
    use = world.scheduled.get(status.model)
    if use is None:
        return False
    return is_due(world, status) or 0 <= use.starts_at_s - world.taken_at_s <= horizon_s


def _is_warm(file: _File, now_s: float) -> bool:
    ratio = file.warmth.cached_ratio
    if ratio is not None:
        return ratio >= WARM_RATIO
    warmed_s = file.warmth.warmed_at_s
    return warmed_s is not None and now_s - warmed_s < TRUST_S


def _makes_room(
    file: _File, files: list[_File], host: HostMemory, config: WarmConfig
) -> tuple[ModelId, ...] | None:
    """Whose files go for it; None where it does not fit all the same."""
    budget = host.total_bytes // 2 if config.budget_bytes is None else config.budget_bytes
    others = [each for each in files if each is not file and each.cached_bytes]
    kept = sum(each.cached_bytes for each in others)
    most = min(budget, host.available_bytes - config.keep_free_bytes)
    over = kept + file.warmth.weights_bytes - most
    goes = []
    for each in sorted(others, key=lambda other: (other.value, other.status.model)):
        if over <= 0 or each.value * MARGIN >= file.value:
            break
        goes.append(each.status.model)
        over -= each.cached_bytes
    return tuple(goes) if over <= 0 else None
