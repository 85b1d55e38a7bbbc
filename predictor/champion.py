"""Forecasts of arrivals in the champion's words, where it has some. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from contracts.forecasts import Forecast, ForecastStatus
from predictor.models.boosted import METHOD, mean_of
from predictor.windows import Floats


def in_champions_words(forecasts: Sequence[Forecast], quantiles: Floats) -> tuple[Forecast, ...]:
    """``forecasts`` with the challenger's quantiles.

    The floor stays where the mixture has lost to it, and the mixture where the challenger has
    no opinion; scores are the mixture's in any case.

    Parameters
    ----------
    quantiles : (n, horizons, levels)
        Not a number without an opinion.
    """
    means = mean_of(quantiles)
    return tuple(
        replace(
            forecast,
            horizons=tuple(
                replace(horizon, method=METHOD, mean=mean, quantiles=tuple(values))
                if math.isfinite(mean) and horizon.status is not ForecastStatus.DEGRADED
                else horizon
                for horizon, mean, values in zip(forecast.horizons, row, laws, strict=True)
            ),
        )
        for forecast, row, laws in zip(forecasts, means.tolist(), quantiles.tolist(), strict=True)
    )
