"""Whether a node's machine has so much to do that prefetches and batches had better wait. Pure.

A figure is smoothed over some readings, so that one busy moment is no strain. A strain begins
when the smoothed figure is over its threshold, and ends once it is clearly below and has lasted
for a while: what waits does not begin and stop all the time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from contracts.config import PlannerConfig
from contracts.ids import NodeId
from contracts.readings import ProbeReading
from contracts.reasons import Reason
from contracts.world import LoadTime, NodeStatus, Strain, WorldSnapshot

SMOOTHING_S = 10.0
"""Three readings in a row at 5 s make most of a figure."""

SLACK = 0.9
"""A strain goes on until its figure is below this part of the threshold."""

LASTS_S = 15.0
"""It lasts at least so long."""

FORGET_S = 60.0
"""Without a reading for so long nothing is known of a machine, also not that it is strained."""

SLOW_LOADS = 2.0
"""Loads that take so many times what was expected are slow: a disk or a bus is shared."""

_OF_MACHINES = frozenset({Reason.GPU_BUSY, Reason.CPU_BUSY, Reason.VRAM_FULL})

MAX_LOADS = 64
"""Loads that are remembered."""


def with_strains(world: WorldSnapshot, config: PlannerConfig) -> WorldSnapshot:
    """The world once each node's newest reading, and its loads, are taken into account."""
    changed = {}
    for name, node in world.nodes.items():
        after = _node(world, node, config)
        if after is not node:
            changed[name] = after
    return replace(world, nodes={**world.nodes, **changed}) if changed else world


def with_load(world: WorldSnapshot, load: LoadTime) -> WorldSnapshot:
    """One more load that was measured."""
    return replace(world, recent_loads=(*world.recent_loads, load)[-MAX_LOADS:])


def load_slowness(
    world: WorldSnapshot, node: NodeId, config: PlannerConfig
) -> tuple[float | None, float | None]:
    """How long loads took that ended within the window, at the percentile that is watched.

    In seconds, and as a multiple of what was expected of each; None: there were none, or
    nothing was expected of them.
    """
    since_s = world.taken_at_s - config.strain.load_window_s
    recent = [
        load for load in world.recent_loads if load.node == node and load.ended_at_s > since_s
    ]
    ratios = [load.load_s / load.expected_s for load in recent if load.expected_s]
    share = config.strain.percentile / 100.0
    return percentile([load.load_s for load in recent], share), percentile(ratios, share)


def percentile(values: list[float], share: float) -> float | None:
    """The smallest value that ``share`` of all do not exceed; None: there are none.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.0
    """
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def strain_of(node: NodeStatus) -> Strain | None:
    """What a prefetch to this node waits for; None: nothing."""
    return node.strains[0] if node.strains else None


def thresholds(config: PlannerConfig) -> Mapping[Reason, float]:
    """From where on each figure is a strain.

    What our own orders may fill of the memory is none, so that a small reserve lets it be fuller.
    """
    strain = config.strain
    return {
        Reason.GPU_BUSY: strain.gpu_ratio,
        Reason.CPU_BUSY: strain.cpu_ratio,
        Reason.VRAM_FULL: max(strain.vram_ratio, 1.0 - config.reserve_ratio),
        Reason.LOADS_SLOW: SLOW_LOADS,
    }


def _node(world: WorldSnapshot, node: NodeStatus, config: PlannerConfig) -> NodeStatus:
    now_s = world.taken_at_s
    load_s, slowness = load_slowness(world, node.node, config)
    levels = _levels(node, now_s)
    if slowness is not None:
        levels[Reason.LOADS_SLOW] = slowness
    before = {strain.reason: strain for strain in node.strains}
    strains = []
    for reason, threshold in thresholds(config).items():
        strain = _judged(before.get(reason), reason, levels.get(reason), threshold, now_s)
        if strain is not None:
            strains.append(strain)
    known = (node.levels, node.strains, node.load_latency_s)
    if (levels, tuple(strains), load_s) == known:
        return node
    read_at_s = node.strained_at_s if node.reading is None else node.reading.at_s
    return replace(
        node,
        levels=levels,
        strains=tuple(strains),
        strained_at_s=read_at_s,
        load_latency_s=load_s,
    )


def _levels(node: NodeStatus, now_s: float) -> dict[Reason, float]:
    """The smoothed figures of the machine with the newest reading in them, which counts once."""
    reading = node.reading
    if reading is None or not node.alive or now_s - reading.at_s > FORGET_S:
        return {}
    last_s = node.strained_at_s
    if last_s is not None and reading.at_s <= last_s:
        return {kind: level for kind, level in node.levels.items() if kind in _OF_MACHINES}
    passed_s = SMOOTHING_S if last_s is None else reading.at_s - last_s
    share = 1.0 - math.exp(-passed_s / SMOOTHING_S)
    levels = {}
    for reason, value in _figures(reading).items():
        # From zero, so that the first reading of a busy machine is no strain by itself. What
        # memory is taken does not come and go within a moment.
        known = value if reason is Reason.VRAM_FULL else node.levels.get(reason, 0.0)
        levels[reason] = known + share * (value - known)
    return levels


def _figures(reading: ProbeReading) -> Mapping[Reason, float]:
    total, used = reading.gpu_memory_total_bytes, reading.gpu_memory_used_bytes
    told = {
        Reason.GPU_BUSY: reading.gpu_utilization_ratio,
        Reason.CPU_BUSY: reading.cpu_utilization_ratio,
        Reason.VRAM_FULL: None if not total or used is None else used / total,
    }
    return {reason: value for reason, value in told.items() if value is not None}


def _judged(
    before: Strain | None, reason: Reason, level: float | None, threshold: float, now_s: float
) -> Strain | None:
    if level is None:
        return None
    if before is None:
        if level < threshold:
            return None
        return Strain(reason=reason, since_s=now_s, level=level, threshold=threshold)
    lasts = now_s - before.since_s < LASTS_S
    if level < SLACK * threshold and not lasts:
        return None
    return replace(before, level=level, threshold=threshold)
