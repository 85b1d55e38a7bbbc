"""Whether a high quantile is worse at the end of a run than at its start. Pure.

Latencies come in bursts, so they are no independent draws either: whole blocks of neighbours
are drawn again (E. Carlstein, "The use of subseries values for estimating the variance of a
general statistic", Annals of Statistics 14, 1986), and the interval is the middle 95 % of the
differences that come of it (B. Efron, the percentile bootstrap).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.soak.trends import Verdict

BLOCK = 25
DRAWS = 2000
FEWEST = 8 * BLOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A quantile in the first and in the last part, and the interval of their difference."""

    first: float
    last: float
    low: float
    high: float
    verdict: Verdict


def shift(
    first: Sequence[float],
    last: Sequence[float],
    *,
    share: float = 0.99,
    seed: int,
    ratio: float = 0.2,
    floor: float = 0.0,
) -> Shift:
    """Compare a quantile of two parts of a run, each in the order in which it was measured.

    It grows when the difference is above zero beyond noise, and matters: more than ``ratio`` of
    the first, and more than ``floor``. It shrinks by the same rule.
    """
    before, after = np.asarray(first, dtype=np.float64), np.asarray(last, dtype=np.float64)
    if min(len(before), len(after)) < FEWEST:
        nothing = math.nan
        return Shift(
            first=nothing, last=nothing, low=nothing, high=nothing, verdict=Verdict.TOO_FEW
        )
    random = np.random.default_rng(seed)
    was, now = float(np.quantile(before, share)), float(np.quantile(after, share))
    drawn = _drawn(after, share, random) - _drawn(before, share, random)
    low, high = (float(bound) for bound in np.quantile(drawn, [0.025, 0.975]))
    matters = max(ratio * was, floor)
    verdict = Verdict.FLAT
    if low > 0.0 and now - was > matters:
        verdict = Verdict.GROWS
    elif high < 0.0 and was - now > matters:
        verdict = Verdict.SHRINKS
    return Shift(first=was, last=now, low=low, high=high, verdict=verdict)


def _drawn(
    values: NDArray[np.float64], share: float, random: np.random.Generator
) -> NDArray[np.float64]:
    """The quantile of many draws of whole blocks."""
    blocks = values[: len(values) // BLOCK * BLOCK].reshape(-1, BLOCK)
    return np.array(
        [
            np.quantile(blocks[random.integers(0, len(blocks), len(blocks))], share)
            for _ in range(DRAWS)
        ]
    )
