"""Whether a series grows: a robust slope, how sure it is, and what that says. Pure.

The slope is Theil-Sen's, the median of the slopes of all pairs (P. K. Sen, "Estimates of the
regression coefficient based on Kendall's tau", JASA 63, 1968). Its interval and whether it is
there at all come from Kendall's S (M. G. Kendall, "Rank Correlation Methods", 1975, with ties).
Samples of one process are no independent draws, which would make every wobble significant, so
the variance of S is corrected by the autocorrelation of the ranks of what the slope leaves
(K. H. Hamed and A. R. Rao, "A modified Mann-Kendall trend test for autocorrelated data",
J. Hydrology 204, 1998).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

DAY_S = 86_400.0
FEWEST = 12
"""Samples below which nothing is said."""

MOST = 800
"""Samples that are compared pair by pair; longer series are thinned by the medians of parts."""

Floats = NDArray[np.float64]


class Verdict(StrEnum):
    """What a series does."""

    FLAT = "flat"
    SHRINKS = "shrinks"
    GROWS = "grows"
    SETTLES = "settles"
    FILLS = "fills"
    OVER = "over its bound"
    TOO_FEW = "too few samples"

    @property
    def is_bad(self) -> bool:
        """Whether it is a bug."""
        return self in (Verdict.GROWS, Verdict.OVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A slope in units a day, and the interval that holds it with the confidence asked for."""

    slope: float
    low: float
    high: float

    @property
    def rises(self) -> bool:
        """Whether it is above zero beyond noise."""
        return self.low > 0.0

    @property
    def falls(self) -> bool:
        """Whether it is below zero beyond noise."""
        return self.high < 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What growth of a series matters.

    Attributes
    ----------
    ratio_per_day : float
        Growth in a day that matters, as a share of the level.
    floor_per_day : float
        Growth in a day below which nothing matters, in the series' unit.
    bound : float, optional
        It fills up to here by design; above it (and ``slack`` of it) it is over.
    why : str
        What the bound is.
    slack : float
        Share of the bound by which it may be passed (``MAXLEN ~`` drops whole nodes).
    """

    ratio_per_day: float = 0.05
    floor_per_day: float = 0.0
    bound: float | None = None
    why: str = ""
    slack: float = 0.02

    def limit_per_day(self, level: float) -> float:
        """Growth in a day from which on it matters."""
        return max(self.ratio_per_day * abs(level), self.floor_per_day)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A series after its warm-up.

    Attributes
    ----------
    level, last : float
        Median, and the last sample.
    limit_per_day : float
        Growth that would have mattered.
    """

    level: float
    last: float
    trend: Trend
    limit_per_day: float
    bound: float | None
    why: str
    verdict: Verdict
    samples: int


def trend(times_s: Sequence[float], values: Sequence[float], confidence: float = 0.95) -> Trend:
    """Theil-Sen's slope a day, with the interval that autocorrelated samples allow.

    Raises
    ------
    ValueError
        Fewer than three samples, or times that do not grow.
    """
    times, series = _thinned(
        np.asarray(times_s, dtype=np.float64), np.asarray(values, dtype=np.float64)
    )
    count = len(series)
    if count < 3 or not bool(np.all(np.diff(times) > 0.0)):
        raise ValueError("a trend needs three samples or more at times that grow")
    later, earlier = np.triu_indices(count, k=1)[::-1]
    slopes = np.sort((series[later] - series[earlier]) / (times[later] - times[earlier]))
    slope = float(np.median(slopes))
    z = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    spread = z * math.sqrt(_variance_of_s(series) * _inflation(series - slope * times))
    pairs = len(slopes)
    low = slopes[max(0, math.floor((pairs - spread) / 2.0) - 1)]
    high = slopes[min(pairs - 1, math.ceil((pairs + spread) / 2.0))]
    return Trend(slope=slope * DAY_S, low=float(low) * DAY_S, high=float(high) * DAY_S)


def judge(times_s: Sequence[float], values: Sequence[float], rule: Rule) -> Judged:
    """What the series does.

    It grows when the slope is above zero beyond noise, and a day of it would matter, and the
    later half does not show that it has stopped (then it ``settles``). With a bound it ``fills``
    instead, until it is over the bound.
    """
    level = float(np.median(np.asarray(values, dtype=np.float64))) if len(values) else math.nan
    limit = rule.limit_per_day(0.0 if math.isnan(level) else level)
    if len(values) < FEWEST:
        found, verdict = Trend(slope=0.0, low=-math.inf, high=math.inf), Verdict.TOO_FEW
    else:
        found = trend(times_s, values)
        verdict = _verdict(times_s, values, found, limit, rule)
    return Judged(
        level=level,
        last=float(values[-1]) if len(values) else math.nan,
        trend=found,
        limit_per_day=limit,
        bound=rule.bound,
        why=rule.why,
        verdict=verdict,
        samples=len(values),
    )


def _verdict(
    times_s: Sequence[float], values: Sequence[float], found: Trend, limit: float, rule: Rule
) -> Verdict:
    if rule.bound is not None and max(values) > rule.bound * (1.0 + rule.slack):
        return Verdict.OVER
    if found.rises and found.slope > limit:
        if rule.bound is not None:
            return Verdict.FILLS
        half = len(values) // 2
        later = trend(times_s[half:], values[half:])
        return Verdict.SETTLES if later.high < limit else Verdict.GROWS
    if found.falls and found.slope < -limit:
        return Verdict.SHRINKS
    return Verdict.FLAT


def _thinned(times: Floats, series: Floats) -> tuple[Floats, Floats]:
    """At most ``MOST`` samples: medians of equal parts."""
    if len(series) <= MOST:
        return times, series
    parts = min(MOST, len(series))
    return (
        np.array([np.median(part) for part in np.array_split(times, parts)]),
        np.array([np.median(part) for part in np.array_split(series, parts)]),
    )


def _variance_of_s(series: Floats) -> float:
    """Kendall's variance of S for independent samples, less what ties take off."""
    count = len(series)
    _, ties = np.unique(series, return_counts=True)
    all_different = count * (count - 1) * (2 * count + 5)
    tied = int(np.sum(ties * (ties - 1) * (2 * ties + 5)))
    return (all_different - tied) / 18.0


def _inflation(residuals: Floats) -> float:
    """By how much autocorrelation widens the variance of S; never below 1.

    Only lags whose correlation is beyond noise count, as Hamed and Rao have it, and only up to
    a third of the series, where enough pairs are left to know it.
    """
    count = len(residuals)
    ranks = _ranks(residuals)
    centred = ranks - ranks.mean()
    power = float(centred @ centred)
    if power == 0.0:
        return 1.0
    noise = 1.96 / math.sqrt(count)
    total = 0.0
    for lag in range(1, max(2, count // 3)):
        correlation = float(centred[:-lag] @ centred[lag:]) / power
        if abs(correlation) > noise:
            left = count - lag
            total += left * (left - 1) * (left - 2) * correlation
    return max(1.0, 1.0 + 2.0 * total / (count * (count - 1) * (count - 2)))


def _ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends: NDArray[Any] = np.cumsum(counts)
    means = ends - (counts - 1) / 2.0
    return np.asarray(means[inverse], dtype=np.float64)
