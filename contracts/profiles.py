"""What was measured of a model on a node: numbers with their count, their spread and their age.

A location is the median of the last measurements and a spread is the normal-consistent median
absolute deviation (Hampel, "The Influence Curve and Its Role in Robust Estimation", JASA 69,
1974): up to half of the measurements may be wrong, by however much, and the estimate stays
between right ones. So a neighbour that took memory in the middle of two loads of five moves
nothing. What is older than the window is forgotten, so that a change is followed after half of
it::

    value  = median(x_1 … x_n)                 n <= WINDOW
    spread = 1.4826 x median(|x_i - value|)

Worked example: 3.00, 3.02, 7.00, 2.98, 3.01 GB: value 3.01, spread 1.4826 x 0.01 = 0.015 GB.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from contracts.ids import ModelId, NodeId
from contracts.memory import PlaceId, Split

WINDOW = 9
"""Measurements that count: four wrong ones of nine do not matter, five new ones are followed."""

MAD_TO_SIGMA = 1.4826
"""What makes the median absolute deviation of normal measurements their standard deviation."""

MAX_PROFILES = 5000
"""Models whose profiles are kept; those measured longest ago go, and are counted."""

MAX_CONFIGS = 6
"""Configurations and nodes that are kept of one model; the one measured longest ago goes."""

LOAD_COLD, LOAD_WARM = "load_cold_s", "load_warm_s"
"""Seconds of a load whose weights come from the disk, and from the page cache."""

FIRST_TOKEN_COLD, FIRST_TOKEN = "first_token_after_load_s", "first_token_s"
"""Seconds from the dispatch to the first token: of the first request after a load, and others."""

TOKEN_AT = "token_s_at_"  # noqa: S105 - no password
"""Seconds for each further token of one answer, by how many ran at once (1, 2, 4, 8 or more)."""

BATCHES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One number. ``spread`` is a standard deviation, 0 for a single measurement."""

    value: float
    count: int
    spread: float
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The last measurements of one thing; ``count`` is how many there were in all."""

    values: tuple[float, ...] = ()
    count: int = 0
    at_s: float = 0.0

    def plus(self, value: float, at_s: float) -> Series:
        """With one more; what is not finite or negative was no measurement."""
        if not math.isfinite(value) or value < 0.0:
            return self
        return Series(values=(*self.values, value)[-WINDOW:], count=self.count + 1, at_s=at_s)

    def estimate(self) -> Estimate | None:
        """What they say together; None where there is none."""
        if not self.values:
            return None
        value, spread = location(self.values)
        return Estimate(value=value, count=self.count, spread=spread, at_s=self.at_s)


def location(values: Sequence[float]) -> tuple[float, float]:
    """Median and spread of measurements, of which there is at least one.

    >>> location([3.0, 7.0, 3.1])
    (3.1, 0.148...)
    """
    middle = median(values)
    return middle, MAD_TO_SIGMA * median(abs(value - middle) for value in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """One configuration of a model on one node.

    Attributes
    ----------
    revision : str
        Digest of what in its configuration decides about memory and time; empty: not known.
    footprints : tuple of Split
        The last measured footprints, each by place.
    footprint_count : int
        How many there were in all; ``rejected`` more were thrown away, since others moved.
    series : mapping
        Everything else, by the names above.
    """

    node: NodeId
    revision: str = ""
    footprints: tuple[Split, ...] = ()
    footprint_count: int = 0
    footprint_at_s: float = 0.0
    rejected: int = 0
    series: Mapping[str, Series] = field(default_factory=dict)
    at_s: float = 0.0

    def estimate(self, name: str) -> Estimate | None:
        """What was measured under this name; None: nothing."""
        series = self.series.get(name)
        return None if series is None else series.estimate()

    def footprint(self) -> Mapping[PlaceId, Estimate]:
        """Bytes by place, of the loads that were split as most of them were; empty: not measured.

        Which card a model goes to is LocalAI's choice: where it has changed, loads on one card
        say nothing of the other. Of two that are as frequent the newer one counts.
        """
        if not self.footprints:
            return {}
        shapes = [tuple(sorted(split)) for split in self.footprints]
        counts = Counter(shapes)
        newest = {shape: at for at, shape in enumerate(shapes)}
        shape = max(counts, key=lambda one: (counts[one], newest[one]))
        alike = [split for split, own in zip(self.footprints, shapes, strict=True) if own == shape]
        found = {}
        for place in shape:
            value, spread = location([float(split[place]) for split in alike])
            found[place] = Estimate(
                value=value, count=len(alike), spread=spread, at_s=self.footprint_at_s
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProfile:
    """All that was measured of one model, the configuration measured last at the end."""

    model: ModelId
    measures: tuple[Measures, ...] = ()

    @property
    def at_s(self) -> float:
        """When it was last added to."""
        return max((one.at_s for one in self.measures), default=0.0)

    def on(self, node: NodeId, revision: str) -> Measures | None:
        """Of this configuration on this node; None: never measured."""
        for one in self.measures:
            if one.node == node and one.revision == revision:
                return one
        return None

    def with_measures(self, changed: Measures) -> MeasuredProfile:
        """With ``changed`` in place of what was known of the same configuration and node."""
        others = [
            one
            for one in self.measures
            if (one.node, one.revision) != (changed.node, changed.revision)
        ]
        others.sort(key=lambda one: one.at_s)
        return MeasuredProfile(model=self.model, measures=(*others[-(MAX_CONFIGS - 1) :], changed))


def batch_of(concurrency: int) -> int:
    """Under which of ``BATCHES`` answers are counted that run beside so many."""
    return max(batch for batch in BATCHES if batch <= max(1, concurrency))


def batch_gain(measures: Measures) -> Mapping[int, float]:
    """How many times the tokens of one answer at a time come together, by answers at once.

    >>> alone, four = Series().plus(0.02, 1.0), Series().plus(0.04, 1.0)
    >>> batch_gain(Measures(node=NodeId("a"), series={"token_s_at_1": alone, "token_s_at_4": four}))
    {4: 2.0}
    """
    alone = measures.estimate(f"{TOKEN_AT}1")
    if alone is None:
        return {}
    gains = {}
    for batch in BATCHES[1:]:
        together = measures.estimate(f"{TOKEN_AT}{batch}")
        if together is not None and together.value > 0.0:
            gains[batch] = batch * alone.value / together.value
    return gains


def gpu_over_cpu(gpu: Measures, cpu: Measures) -> float | None:
    """How many times faster tokens come from the GPU than from the CPU; None: not measured."""
    on_gpu, on_cpu = gpu.estimate(f"{TOKEN_AT}1"), cpu.estimate(f"{TOKEN_AT}1")
    if on_gpu is None or on_cpu is None or on_gpu.value <= 0.0:
        return None
    return on_cpu.value / on_gpu.value


def file_read_s(measures: Measures) -> Estimate | None:
    """The part of a cold load that goes into reading its files: what a warm one does not take.

    Spreads of independent measurements add up squared.
    """
    cold, warm = measures.estimate(LOAD_COLD), measures.estimate(LOAD_WARM)
    if cold is None or warm is None:
        return None
    return Estimate(
        value=max(0.0, cold.value - warm.value),
        count=min(cold.count, warm.count),
        spread=(cold.spread**2 + warm.spread**2) ** 0.5,
        at_s=max(cold.at_s, warm.at_s),
    )
