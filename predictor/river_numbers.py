"""The plain numbers in River's estimators, and fresh ones with such numbers in them."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any

from river import drift, linear_model, optim, preprocessing, time_series

from contracts.errors import Invalid
from predictor.models.drift import fresh_detector
from predictor.models.river_season import fresh_season
from predictor.object_codec import Kind

# How a detector writes its window: settings, sums, counts, and how many rows of buckets follow.
_WINDOW = struct.Struct("<diQdd4d4iQ")
_SETTINGS = 5
_TAIL_BYTES = 28
"""The settings once more."""
_ROW = struct.Struct("<2Q")
_COUNT = struct.Struct("<Q")
_MOST_ROWS = 48
"""Row number n is of buckets of 2 ** n outcomes."""


def _scaler_numbers(scaler: Any) -> Sequence[Any]:
    return dict(scaler.counts), dict(scaler.means), dict(scaler.vars)


def _scaler(values: Sequence[Any]) -> Any:
    counts, means, variances = values
    made: Any = preprocessing.StandardScaler()
    made.counts = Counter(counts)
    made.means.update(means)
    made.vars.update(variances)
    return made


def _regression_numbers(regression: Any) -> Sequence[Any]:
    return (
        regression.optimizer.lr.learning_rate,
        regression.intercept_lr.learning_rate,
        regression.optimizer.n_iterations,
        regression.intercept,
        regression.weights,
    )


def _regression(values: Sequence[Any]) -> Any:
    rate, intercept_rate, steps, intercept, weights = values
    made: Any = linear_model.LinearRegression(
        optimizer=optim.SGD(rate), intercept_lr=intercept_rate
    )
    made.optimizer.n_iterations = steps
    made.intercept = intercept
    made._weights.update(weights)
    return made


def _season_numbers(season: Any) -> Sequence[Any]:
    parts = (season.level, season.trend, season.season, season._first_values)
    return (*map(list, parts), season._initialized)


def _season(values: Sequence[Any]) -> Any:
    level, trend, season, first, is_initialized = values
    made = fresh_season()
    made.level.extend(level)
    made.trend.extend(trend)
    made.season.extend(season)
    made._first_values.extend(first)
    made._initialized = is_initialized
    return made


def _detector_numbers(detector: Any) -> Sequence[Any]:
    data = detector._helper.__getstate__()
    numbers = _WINDOW.unpack_from(data)
    at = _WINDOW.size
    rows = []
    for _ in range(numbers[-1]):
        _size, used = _ROW.unpack_from(data, at)
        at += _ROW.size
        columns = []
        for _column in range(2):
            (length,) = _COUNT.unpack_from(data, at)
            columns.append(list(struct.unpack_from(f"<{used}d", data, at + _COUNT.size)))
            at += _COUNT.size + 8 * length
        rows.append(columns)
    found = (detector._drift_detected, list(numbers[_SETTINGS:-1]), rows)
    if _window(fresh_detector(), found) != data:
        raise Invalid("a detector's window is not what it is known to be")
    return found


def _detector(values: Sequence[Any]) -> Any:
    has_drifted, _sums, _rows = values
    made = fresh_detector()
    made._helper.__setstate__(_window(made, values))
    made._drift_detected = has_drifted
    return made


def _window(fresh: Any, values: Sequence[Any]) -> bytes:
    """What ``fresh`` can read, since it is as it would have written it."""
    has_drifted, numbers, rows = values
    total, variance, width, total_width, buckets, most, tick, detections = numbers
    used = [len(totals) for totals, _ in rows]
    outcomes = sum(count << place for place, count in enumerate(used[:_MOST_ROWS]))
    if not (
        0 < len(used) <= _MOST_ROWS
        and max(used) <= fresh.max_buckets
        and (len(used) == 1 or min(used) > 0)
        and type(has_drifted) is bool
        and width == outcomes
        and all(map(math.isfinite, (total, variance, total_width)))
    ):
        raise Invalid("a detector's window that none can have")
    room = fresh.max_buckets + 1
    settings = _WINDOW.unpack_from(fresh._helper.__getstate__())[:_SETTINGS]
    sums = (total, variance, width, total_width, buckets, most, tick, detections)
    parts = [_WINDOW.pack(*settings, *sums, len(rows))]
    for count, columns in zip(used, rows, strict=True):
        parts.append(_ROW.pack(fresh.max_buckets, count))
        for column in columns:
            padded = [*column, *[0.0] * (room - count)]
            parts.append(_COUNT.pack(room) + struct.pack(f"<{room}d", *padded))
    return b"".join(parts) + bytes(fresh._helper.__getstate__()[-_TAIL_BYTES:])


KINDS: tuple[Kind, ...] = (
    Kind(preprocessing.StandardScaler, _scaler_numbers, _scaler),
    Kind(linear_model.LinearRegression, _regression_numbers, _regression),
    Kind(time_series.HoltWinters, _season_numbers, _season),
    Kind(drift.ADWIN, _detector_numbers, _detector),
)
