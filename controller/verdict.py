"""By how much one policy is better than another, and how sure that is: pure.

Both are judged on the same blocks of time (ghosts) or on neighbouring slices (A/B), so that
what the hour does to both cancels out. The interval is a paired bootstrap: blocks are drawn
with replacement, both sides together, and the difference of the shares is taken each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 2000
SEED = 20_240_101
"""Fixed: the same counts give the same interval."""

LEVEL = 0.95
MIN_BLOCKS = 4
"""Fewer say nothing about how much blocks differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What both sides did in one block: requests, and those of them that were late."""

    ours: int
    ours_late: int
    theirs: int
    theirs_late: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Share of late requests with theirs less that with ours: above 0 ours is better.

    ``low`` and ``high`` hold the true difference in 95 of 100 such comparisons; None where
    there are too few blocks. ``sure``: the share of draws in which ours is better.
    """

    blocks: int
    ours_late_ratio: float
    theirs_late_ratio: float
    low: float | None
    high: float | None
    sure: float | None

    @property
    def difference(self) -> float:
        """How many of all requests are late with theirs and not with ours."""
        return self.theirs_late_ratio - self.ours_late_ratio


def judge(pairs: Sequence[Pair]) -> Verdict | None:
    """The verdict over all blocks in which both had requests; None where there are none."""
    both = [pair for pair in pairs if pair.ours and pair.theirs]
    if not both:
        return None
    counts = np.array(
        [(pair.ours, pair.ours_late, pair.theirs, pair.theirs_late) for pair in both], dtype=float
    )
    ours, ours_late, theirs, theirs_late = counts.sum(axis=0).tolist()
    low = high = sure = None
    if len(both) >= MIN_BLOCKS:
        draws = np.random.default_rng(SEED).integers(0, len(both), size=(DRAWS, len(both)))
        sums = counts[draws].sum(axis=1)
        drawn = sums[:, 3] / sums[:, 2] - sums[:, 1] / sums[:, 0]
        tail = (1.0 - LEVEL) / 2.0
        low, high = (float(value) for value in np.quantile(drawn, (tail, 1.0 - tail)))
        sure = float(np.mean(drawn > 0.0))
    return Verdict(
        blocks=len(both),
        ours_late_ratio=ours_late / ours,
        theirs_late_ratio=theirs_late / theirs,
        low=low,
        high=high,
        sure=sure,
    )
