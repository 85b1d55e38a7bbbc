"""What came in each minute, and what had been forecast for it. No clock, no I/O."""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from contracts.forecasts import (
    HORIZONS_S,
    QUANTILE_LEVELS,
    HorizonForecast,
    ModelForecast,
    Signal,
)
from contracts.ids import ModelId

MINUTE_S = 60.0
_LEVELS = len(QUANTILE_LEVELS)
_NEVER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One minute of one model at one horizon.

    Attributes
    ----------
    start_s, end_s : float
        The minute, in epoch seconds.
    count : int or None
        Requests that arrived in it; None: it has not ended, or nobody counted then.
    window_count : int or None
        Requests in the ``horizon_s`` seconds that end with this minute.
    quantiles : tuple of float or None
        What had been forecast for that window at its beginning, one value per level of
        ``QUANTILE_LEVELS``; None: nothing had been forecast.
    """

    start_s: float
    end_s: float
    count: int | None
    window_count: int | None
    quantiles: tuple[float, ...] | None


class DemandHistory:
    """Arrivals by minute and the bands forecast for them, for a bounded number of models.

    A forecast made within half a minute of the full minute ``b`` counts as made at ``b``: it
    is about the window from ``b`` to ``b + horizon``. Of several, the closest one is kept.

    Parameters
    ----------
    minutes : int
        Minutes kept; older ones are overwritten.
    max_models : int
        Models kept; beyond it the one that was heard of longest ago is forgotten and counted
        in ``forgotten``.
    """

    def __init__(self, *, minutes: int = 360, max_models: int = 1000) -> None:
        self._minutes = minutes
        self._max_models = max_models
        self._series: OrderedDict[ModelId, _Series] = OrderedDict()
        self._first_counted_minute: int | None = None
        self.forgotten = 0

    def counting_since(self, at_s: float) -> None:
        """From this moment on all arrivals are seen, so that a minute without any is zero."""
        # The minute in which counting began was only counted in part.
        minute = math.ceil(at_s / MINUTE_S)
        if self._first_counted_minute is None or minute < self._first_counted_minute:
            self._first_counted_minute = minute

    def arrived(self, model: ModelId, at_s: float) -> None:
        """Count one request."""
        self._of(model).count(int(at_s // MINUTE_S))

    def drop(self, model: ModelId) -> None:
        """Forget a name that turned out to be no model."""
        self._series.pop(model, None)

    def forecast_made(self, forecast: ModelForecast) -> None:
        """Remember the bands of a new forecast of arrivals."""
        arrivals = forecast.signal(Signal.ARRIVALS)
        if arrivals is None:
            return
        boundary = round(arrivals.made_at_s / MINUTE_S)
        distance_s = abs(arrivals.made_at_s - boundary * MINUTE_S)
        if forecast.model not in self._series and len(self._series) >= self._max_models:
            return  # who is asked for stays; what is only forecast takes nobody's place
        series = self._of(forecast.model)
        for horizon in arrivals.horizons:
            series.forecast(horizon, boundary, distance_s)

    def rows(
        self, model: ModelId, *, horizon_s: float, now_s: float, minutes: int
    ) -> tuple[HistoryRow, ...]:
        """The last ``minutes`` minutes and, past now, what is forecast, oldest first.

        Parameters
        ----------
        horizon_s : float
            One of ``HORIZONS_S``.
        """
        current = int(now_s // MINUTE_S)
        width = round(horizon_s / MINUTE_S)
        series = self._series.get(model)
        minutes = min(minutes, self._minutes - width)
        return tuple(
            self._row(series, minute, width, horizon_s, current)
            for minute in range(current - minutes, current + width + 1)
        )

    @property
    def models(self) -> tuple[ModelId, ...]:
        """Models that something is known of."""
        return tuple(self._series)

    def _row(
        self, series: _Series | None, minute: int, width: int, horizon_s: float, current: int
    ) -> HistoryRow:
        first = minute - width + 1
        ended = minute < current
        return HistoryRow(
            start_s=minute * MINUTE_S,
            end_s=(minute + 1) * MINUTE_S,
            count=self._sum(series, minute, 1) if ended else None,
            window_count=self._sum(series, first, width) if ended else None,
            quantiles=series.band(horizon_s, first) if series is not None else None,
        )

    def _sum(self, series: _Series | None, first: int, width: int) -> int | None:
        since = self._first_counted_minute
        if since is None or first < since:
            return None
        if series is None:
            # A model that was forgotten has counts that nobody knows any more.
            return None if self.forgotten else 0
        return sum(series.arrivals(minute) for minute in range(first, first + width))

    def _of(self, model: ModelId) -> _Series:
        series = self._series.get(model)
        if series is None:
            series = self._series[model] = _Series(self._minutes)
            if len(self._series) > self._max_models:
                self._series.popitem(last=False)
                self.forgotten += 1
        else:
            self._series.move_to_end(model)
        return series


class _Series:
    """Rings over minutes, as flat arrays: 50 KB a model instead of two megabytes."""

    __slots__ = ("_bands", "_count_minutes", "_counts", "_minutes")

    def __init__(self, minutes: int) -> None:
        self._minutes = minutes
        self._counts = array("q", [0]) * minutes
        self._count_minutes = array("q", [_NEVER]) * minutes
        self._bands: Mapping[float, _BandRing] = {
            horizon_s: _BandRing(minutes) for horizon_s in HORIZONS_S
        }

    def count(self, minute: int) -> None:
        index = minute % self._minutes
        held = self._count_minutes[index]
        if held > minute:
            return  # older than what is kept
        if held != minute:
            self._count_minutes[index] = minute
            self._counts[index] = 0
        self._counts[index] += 1

    def arrivals(self, minute: int) -> int:
        index = minute % self._minutes
        return self._counts[index] if self._count_minutes[index] == minute else 0

    def forecast(self, horizon: HorizonForecast, boundary: int, distance_s: float) -> None:
        ring = self._bands.get(horizon.horizon_s)
        if ring is not None and len(horizon.quantiles) == _LEVELS:
            ring.put(boundary, distance_s, horizon.quantiles)

    def band(self, horizon_s: float, boundary: int) -> tuple[float, ...] | None:
        ring = self._bands.get(horizon_s)
        return ring.get(boundary) if ring is not None else None


class _BandRing:
    __slots__ = ("_boundaries", "_distances", "_minutes", "_values")

    def __init__(self, minutes: int) -> None:
        self._minutes = minutes
        self._boundaries = array("q", [_NEVER]) * minutes
        self._distances = array("f", [0.0]) * minutes
        self._values = array("f", [0.0]) * (minutes * _LEVELS)

    def put(self, boundary: int, distance_s: float, quantiles: tuple[float, ...]) -> None:
        index = boundary % self._minutes
        held = self._boundaries[index]
        if held > boundary or (held == boundary and self._distances[index] < distance_s):
            return
        self._boundaries[index] = boundary
        self._distances[index] = distance_s
        self._values[index * _LEVELS : (index + 1) * _LEVELS] = array("f", quantiles)

    def get(self, boundary: int) -> tuple[float, ...] | None:
        index = boundary % self._minutes
        if self._boundaries[index] != boundary:
            return None
        return tuple(self._values[index * _LEVELS : (index + 1) * _LEVELS])
