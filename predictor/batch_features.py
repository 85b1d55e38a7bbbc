"""What the challenger looks at: features of a model's last day, the same for all models.

All are made from counts per minute, for many models in one step; so a week of looks at a hundred
models takes seconds, and the predictor makes the same numbers from its own windows.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from contracts.forecasts import HORIZONS_S
from predictor.windows import Floats

MINUTE_S = 60.0
DAY_MINUTES = 1440
HORIZON_MINUTES: tuple[int, ...] = tuple(round(horizon_s / MINUTE_S) for horizon_s in HORIZONS_S)
MINUTES_NEEDED = DAY_MINUTES + HORIZON_MINUTES[-1] + 2
"""A day and the longest horizon."""
LEAST_MINUTES = 60
"""A model that has been known for less is not judged."""

_SUMS = (1, 2, 3, 5, 10, 15, 30, 60, 180, 360, 720, DAY_MINUTES)
_PERIODS = (5, 10, 15, 30, 60)
_REPEATS = 12
_ACTIVE = (60, DAY_MINUTES)
_HOURS = 23
_AHEAD = (1, 5, 15)
_HOUR, _DAY, _WEEK = 3600.0, 86_400.0, 7 * 86_400.0
_SHIFT = 3.0 / 8.0

FEATURES: tuple[str, ...] = (
    *(f"last_{minutes}_min" for minutes in _SUMS),
    *(f"day_ago_{minutes}_min" for minutes in HORIZON_MINUTES),
    "since_last",
    "gap_before",
    *(f"active_{minutes}_min" for minutes in _ACTIVE),
    *(f"each_{period}_min" for period in _PERIODS),
    *(f"hourly_{minutes}_min" for minutes in _AHEAD),
    "age",
    *(f"{name}_{part}" for name in ("hour", "day", "week") for part in ("sin", "cos")),
)


def to_root(counts: Floats) -> Floats:
    """Where the spread of counts hardly depends on their size (Anscombe 1948)."""
    roots: Floats = np.sqrt(np.maximum(counts, 0.0) + _SHIFT)
    return roots


def from_root(roots: Floats) -> Floats:
    """The counts back, at least 0."""
    counts: Floats = np.maximum(np.square(np.maximum(roots, 0.0)) - _SHIFT, 0.0)
    return counts


def features_of(minutes: Floats, end_s: float) -> Floats:
    """Features of each model at ``end_s``.

    Parameters
    ----------
    minutes : (n, MINUTES_NEEDED)
        Counts, the last minute ends at ``end_s``; not a number where nothing is known.

    Returns
    -------
    (n, features) array; rows of models known for less than ``LEAST_MINUTES`` are not a number.
    """
    known = np.isfinite(minutes)
    counts = np.where(known, minutes, 0.0)
    length = counts.shape[1]
    sums = np.concatenate([np.zeros((len(counts), 1)), np.cumsum(counts, axis=1)], axis=1)
    active = counts > 0.0
    columns = [to_root(sums[:, -1] - sums[:, length - width]) for width in _SUMS]
    day = length - DAY_MINUTES
    columns += [to_root(sums[:, day + width] - sums[:, day]) for width in HORIZON_MINUTES]
    columns += _gaps(active)
    columns += [active[:, -width:].mean(axis=1) for width in _ACTIVE]
    for period in _PERIODS:
        places = length - period * np.arange(1, _REPEATS + 1)
        columns.append(active[:, places].mean(axis=1))
    columns += _hourly(sums, length)
    age = known.sum(axis=1).astype(np.float64)
    columns.append(age / DAY_MINUTES)
    for period_s in (_HOUR, _DAY, _WEEK):
        angle = 2.0 * math.pi * (end_s % period_s) / period_s
        columns += [np.full(len(counts), math.sin(angle)), np.full(len(counts), math.cos(angle))]
    features: Floats = np.stack(columns, axis=1)
    features[age < LEAST_MINUTES] = np.nan
    return features


def bases_of(features: Floats) -> Floats:
    """What the trees start from: the root of a plain rate's count within each horizon.

    The rate is that of the last hour and of the last day, half each.
    """
    hour = np.square(features[:, FEATURES.index("last_60_min")]) - _SHIFT
    day = np.square(features[:, FEATURES.index(f"last_{DAY_MINUTES}_min")]) - _SHIFT
    per_minute = 0.5 * (hour / 60.0 + day / DAY_MINUTES)
    return to_root(per_minute[:, None] * np.array(HORIZON_MINUTES))


def _gaps(active: npt.NDArray[np.bool_]) -> list[Floats]:
    """Minutes since the last request, and between the two last minutes that had one; logs."""
    length = active.shape[1]
    back = active[:, ::-1]
    since = np.where(back.any(axis=1), np.argmax(back, axis=1), length)
    rest = back & (np.arange(length) > since[:, None])
    before = np.where(rest.any(axis=1), np.argmax(rest, axis=1) - since, length)
    return [np.log1p(since), np.log1p(before)]


def _hourly(sums: Floats, length: int) -> list[Floats]:
    """Share of the last hours in which the minutes that come now had a request."""
    starts = length - 60 * np.arange(1, _HOURS + 1)
    return [(sums[:, starts + width] - sums[:, starts] > 0.0).mean(axis=1) for width in _AHEAD]
