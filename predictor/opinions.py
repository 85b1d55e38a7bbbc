"""All forecasts side by side: the mixture that is published, each expert alone and the floors.

For those who judge the predictor (backtests, the bench): one pass through the events gives the
opinion of every method at the same moment, each made before its outcome was known.
"""

from __future__ import annotations

from dataclasses import dataclass

from contracts.forecasts import HORIZONS_S, NEXT_USE_GRID_S, QUANTILE_LEVELS
from contracts.ids import ModelId
from predictor.windows import Floats

MIXTURE = "mixture"
"""The method whose numbers are published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalOpinions:
    """How many requests each method expects of each model within each horizon.

    Attributes
    ----------
    methods : tuple of str
        ``MIXTURE`` first, then the experts and the two floors, ``naive_last_value`` and
        ``naive_seasonal``.
    means : (models, methods, horizons)
    quantiles : (models, methods, horizons, levels)
        Not a number where a method has no opinion.
    """

    models: tuple[ModelId, ...]
    methods: tuple[str, ...]
    means: Floats
    quantiles: Floats
    horizons_s: tuple[float, ...] = HORIZONS_S
    levels: tuple[float, ...] = QUANTILE_LEVELS


@dataclass(frozen=True, slots=True, kw_only=True)
class UseOpinions:
    """How soon each method expects the next request of each model.

    Attributes
    ----------
    methods : tuple of str
        ``MIXTURE`` first, then each expert alone and ``base_rate``, the floor.
    hazards : (models, methods, delays)
        Cumulative hazard H; P(a request within the delay) = 1 - exp(-H).
    """

    models: tuple[ModelId, ...]
    methods: tuple[str, ...]
    hazards: Floats
    delays_s: tuple[float, ...] = NEXT_USE_GRID_S
