"""What is expected: quantile forecasts of demand, and the next-use curve of each model."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from contracts.ids import ModelId

QUANTILE_LEVELS: tuple[float, ...] = (0.1, 0.5, 0.9, 0.99)
HORIZONS_S: tuple[float, ...] = (60.0, 300.0, 900.0, 3600.0)

NEXT_USE_GRID_S: tuple[float, ...] = (
    1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 11.0, 15.0, 20.0, 26.0, 34.0, 45.0, 60.0, 80.0, 105.0,
    140.0, 185.0, 240.0, 320.0, 420.0, 560.0, 740.0, 980.0, 1300.0, 1700.0, 2300.0, 3000.0, 3600.0,
)  # fmt: skip
"""Delays at which a next-use curve is given: about a third apart, so that one load time
of foresight (3 to 30 s) is resolved finely and an hour still fits in 28 numbers."""


class Signal(StrEnum):
    """What a forecast is about."""

    ARRIVALS = "arrivals"
    CONCURRENCY = "concurrency"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    TTFT_S = "ttft_s"
    DURATION_S = "duration_s"
    """From arrival to the end of the answer."""
    TOKENS_PER_S = "tokens_per_s"
    LOAD_S = "load_s"


class ForecastStatus(StrEnum):
    """How far a forecast may be trusted."""

    WARMING_UP = "warming_up"
    """Too little history: the population's prior is most of it."""
    READY = "ready"
    DEGRADED = "degraded"
    """It loses to the naive floor, so the floor is published and planners ignore the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HorizonForecast:
    """Quantiles of one signal over the next ``horizon_s`` seconds.

    Attributes
    ----------
    quantiles : tuple of float
        One value per level of ``QUANTILE_LEVELS``, never decreasing, finite, at least 0.
    method : str
        The forecaster whose numbers these are, such as ``river_linear`` or ``naive``.
    loss, floor_loss : float or None
        Mean pinball loss of the River forecaster and of the naive floor so far (decayed),
        None before the first outcome at this horizon.
    coverage_ratio : float or None
        Share of outcomes at or under the 0.9 quantile.
    weights : tuple of (str, float)
        Who makes up a mixture, and the share of each; those below one in a hundred left out.
    band_coverage_ratio : float or None
        Share of outcomes in the band from the 0.1 to the 0.9 quantile, 0.8 where it is right.
        Counts are whole: of an outcome at an edge of the band the part counts that lies in it.
    rmsse : float or None
        Root mean squared error over that of the last value; below 1 is better than it.
    """

    horizon_s: float
    mean: float
    quantiles: tuple[float, ...]
    method: str
    status: ForecastStatus
    loss: float | None
    floor_loss: float | None
    coverage_ratio: float | None
    weights: tuple[tuple[str, float], ...] = ()
    band_coverage_ratio: float | None = None
    rmsse: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """One signal of one model at all horizons. It counts as absent from ``expires_at_s`` on."""

    model: ModelId
    signal: Signal
    made_at_s: float
    expires_at_s: float
    horizons: tuple[HorizonForecast, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NextUse:
    """When the next request for a model is expected, as a cumulative hazard.

    Attributes
    ----------
    cumulative_hazard : tuple of float
        H(d) at each delay d of ``NEXT_USE_GRID_S`` after ``made_at_s``, never decreasing.
        P(at least one request within d) = 1 - exp(-H(d)).
    last_arrival_at_s : float or None
        The last request that this curve knows of.
    brier, floor_brier : float or None
        Score of "a request within a minute", and of the constant base rate, so far (decayed).
    reliability_error : float or None
        Of all models together: the farthest that the share of minutes with a request lay from
        what was foretold, in any tenth of the probabilities that was seen often enough.
    """

    model: ModelId
    made_at_s: float
    expires_at_s: float
    last_arrival_at_s: float | None
    cumulative_hazard: tuple[float, ...]
    method: str
    status: ForecastStatus
    brier: float | None
    floor_brier: float | None
    reliability_error: float | None = None

    def is_valid(self, now_s: float) -> bool:
        """Whether the curve may be used at all: not expired, not degraded."""
        return now_s < self.expires_at_s and self.status is not ForecastStatus.DEGRADED

    def hazard_within(self, delay_s: float) -> float:
        """H at ``delay_s`` after ``made_at_s``: linear between grid points, flat past the last."""
        if delay_s <= 0.0:
            return 0.0
        index = bisect_right(NEXT_USE_GRID_S, delay_s)
        if index == len(NEXT_USE_GRID_S):
            return self.cumulative_hazard[-1]
        left_s, left = (
            (NEXT_USE_GRID_S[index - 1], self.cumulative_hazard[index - 1]) if index else (0.0, 0.0)
        )
        right_s, right = NEXT_USE_GRID_S[index], self.cumulative_hazard[index]
        return left + (right - left) * (delay_s - left_s) / (right_s - left_s)

    def probability_between(self, now_s: float, start_s: float, end_s: float) -> float:
        """P(at least one request in [now + start, now + end]), given none since it was made.

        Conditioning on the time that has passed is a shift along the cumulative hazard:
        P = 1 - exp(-(H(e + end) - H(e + start))) with e = now - made_at.
        """
        elapsed_s = max(0.0, now_s - self.made_at_s)
        hazard = self.hazard_within(elapsed_s + end_s) - self.hazard_within(elapsed_s + start_s)
        return -math.expm1(-max(0.0, hazard))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelForecast:
    """All that the predictor says about one model. None: it has no opinion.

    ``cold_wait_s``: how long a request is expected to wait for its first content if the model
    had to be loaded for it; None before a load was seen.
    """

    model: ModelId
    next_use: NextUse | None
    signals: tuple[Forecast, ...]
    cold_wait_s: float | None = None

    def signal(self, wanted: Signal) -> Forecast | None:
        """The forecast of ``wanted``, or None."""
        return next((forecast for forecast in self.signals if forecast.signal is wanted), None)


Forecasts = Mapping[ModelId, ModelForecast]
