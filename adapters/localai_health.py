"""How one LocalAI answers, against what is still well. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence

from contracts.node_facts import NodeHealth, NodeThresholds, NodeWarning, Peer

KEPT = 100
"""Short calls that a percentile is taken of."""

LEAST = 5
"""Fewer say nothing."""

MAX_NAMES = 5


class CallTimes:
    """How long short calls took of late."""

    def __init__(self) -> None:
        self._times_s: deque[float] = deque(maxlen=KEPT)

    def add(self, took_s: float) -> None:
        """One more."""
        self._times_s.append(took_s)

    @property
    def p95_s(self) -> float | None:
        """95 of 100 took no longer; None while there are too few."""
        if len(self._times_s) < LEAST:
            return None
        ranked = sorted(self._times_s)
        return ranked[max(0, math.ceil(0.95 * len(ranked)) - 1)]


def used_ratio(used_bytes: int | None, total_bytes: int | None) -> float | None:
    """Share that is used; None where one of them is not told."""
    return None if not total_bytes or used_bytes is None else min(1.0, used_bytes / total_bytes)


def strained(
    health: NodeHealth, limits: NodeThresholds, peers: Sequence[Peer]
) -> tuple[NodeWarning, ...]:
    """What is beyond its threshold, and peers that are gone. Values are worded so as to stay."""
    return (*_slow(health, limits), *_memory(health, limits, peers), *_lost(peers))


def _slow(health: NodeHealth, limits: NodeThresholds) -> Iterator[NodeWarning]:
    if health.discovery_s is not None and health.discovery_s > limits.discovery_s:
        yield NodeWarning(
            setting="discovery_seconds",
            value=f"> {limits.discovery_s:g}",
            problem="It takes long to look up the instances behind this name.",
            remedy="Look at the name server of this host.",
        )
    if health.sync_s is not None and health.sync_s > limits.sync_s:
        yield NodeWarning(
            setting="sync_seconds",
            value=f"> {limits.sync_s:g}",
            problem="A poll of this node takes long, so that what is known of it is old.",
            remedy="Look at its load, and at the network between.",
        )
    if health.call_p95_s is not None and health.call_p95_s > limits.call_p95_s:
        yield NodeWarning(
            setting="call_p95_seconds",
            value=f"> {limits.call_p95_s:g}",
            problem="Of twenty short calls to this node more than one takes longer than it should.",
            remedy="Look at its load, and at the network between.",
        )


def _memory(
    health: NodeHealth, limits: NodeThresholds, peers: Sequence[Peer]
) -> Iterator[NodeWarning]:
    if health.memory_used_ratio is not None and health.memory_used_ratio > limits.memory_ratio:
        yield NodeWarning(
            setting="memory_ratio",
            value=f"> {limits.memory_ratio:g}",
            problem="Most of this node's memory is used, by our models or by others.",
            remedy="See what else runs there; memory.gpu_budget_mb and memory.reserve_ratio bound "
            "our models.",
        )
    full = [
        peer.name
        for peer in peers
        if peer.memory_used_ratio is not None and peer.memory_used_ratio > limits.memory_ratio
    ]
    if full:
        yield NodeWarning(
            setting="peer_memory_ratio",
            value=_names(full),
            problem="Most of the memory of these machines is used.",
            remedy="Let fewer models, or fewer copies, run there.",
        )


def _lost(peers: Sequence[Peer]) -> Iterator[NodeWarning]:
    lost = [peer.name for peer in peers if not peer.online]
    if lost:
        yield NodeWarning(
            setting="peers_lost",
            value=_names(lost),
            problem="LocalAI has not heard from these machines, and works without them.",
            remedy="Look whether they run, or take them out of its network.",
        )


def _names(names: list[str]) -> str:
    ranked = sorted(names)
    more = f" and {len(ranked) - MAX_NAMES} more" if len(ranked) > MAX_NAMES else ""
    return ", ".join(ranked[:MAX_NAMES]) + more
