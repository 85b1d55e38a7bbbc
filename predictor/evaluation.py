"""How good the forecasts have been: each was scored before its outcome taught anything."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from contracts.forecasts import HORIZONS_S, QUANTILE_LEVELS
from predictor.windows import Floats, Rows

MEMORY_OUTCOMES = 200.0
"""Older outcomes fade, so that a score speaks of the present."""
READY_OUTCOMES = 20.0
"""Before so many outcomes a comparison is chance."""
_LOSES_BY, _KEEPS_UP_BY = 1.05, 1.02
"""Degraded when the loss is this much over the floor's, and sound again under the second: a
mixture that has settled on the floor is never better than it."""
MEMORY_USES = 2000.0
"""About a day of looks at each model; a rare one is used only a few times in it."""
_JUDGED_USES = 5.0
"""Fewer uses than this decide nothing."""
_USE_LOSES_BY = 1.1
"""As ``_LOSES_BY``; wider, since a model without habits is foretold no better than by its rate."""
_STANDARD_ERRORS = 2.0
"""And by more than chance: the difference exceeds so many standard errors."""
_LOOKS = 2
"""Within half a minute, and within a minute."""
_LEVELS: Floats = np.array(QUANTILE_LEVELS)


def pinball_loss(quantiles: Floats, outcomes: Floats) -> Floats:
    """Mean over ``QUANTILE_LEVELS`` of the pinball loss; (…, levels) and (…) give (…)."""
    over = outcomes[..., None] - quantiles
    losses: Floats = np.maximum(_LEVELS * over, (_LEVELS - 1.0) * over).mean(axis=-1)
    return losses


@dataclass(frozen=True, slots=True)
class Losses:
    """Outcomes of n forecasts at one horizon: pinball losses and squared errors, each (n,).

    Attributes
    ----------
    seasonal : (n,)
        Not a number where the season before was not known.
    floor : (n,)
        Of whichever naive forecaster was chosen when the forecast was made.
    under : (n,)
        Whether the outcome was at or under the 0.9 quantile.
    inside : (n,)
        How much of the outcome lay in the band from the 0.1 to the 0.9 quantile.
    """

    mixture: Floats
    last: Floats
    seasonal: Floats
    floor: Floats
    error: Floats
    last_error: Floats
    under: npt.NDArray[np.bool_]
    inside: Floats


(_MIXTURE, _LAST, _SEASONAL, _FLOOR, _ERROR, _LAST_ERROR, _UNDER, _INSIDE, _WEIGHT, _SEASONS) = (
    range(10)
)


class ArrivalScores:
    """Decayed losses by row and horizon, and what follows from them.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    """

    def __init__(self, rows: int) -> None:
        self._sums = np.zeros((rows, len(HORIZONS_S), _SEASONS + 1))
        self._degraded = np.zeros((rows, len(HORIZONS_S)), dtype=bool)

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        more = rows - len(self._sums)
        self._sums = np.pad(self._sums, ((0, more), (0, 0), (0, 0)))
        self._degraded = np.pad(self._degraded, ((0, more), (0, 0)))

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        self._sums[row] = 0.0
        self._degraded[row] = False

    def learn(self, rows: Rows, horizon: int, losses: Losses) -> None:
        """Outcomes of one horizon of ``rows``."""
        fade = 1.0 - 1.0 / MEMORY_OUTCOMES
        ones = np.ones(len(rows))
        news = np.stack(
            [
                losses.mixture,
                losses.last,
                losses.seasonal,
                losses.floor,
                losses.error,
                losses.last_error,
                losses.under.astype(np.float64),
                losses.inside,
                ones,
                ones,
            ],
            axis=1,
        )
        old = self._sums[rows, horizon]
        fresh = fade * old + np.nan_to_num(news)
        unknown = ~np.isfinite(losses.seasonal)
        for column in (_SEASONAL, _SEASONS):
            fresh[unknown, column] = old[unknown, column]
        self._sums[rows, horizon] = fresh
        mixture, floor = fresh[:, _MIXTURE], fresh[:, _FLOOR]
        self._degraded[rows, horizon] = (fresh[:, _WEIGHT] >= READY_OUTCOMES) & np.where(
            self._degraded[rows, horizon],
            mixture > _KEEPS_UP_BY * floor,
            mixture > _LOSES_BY * floor,
        )

    def ready(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Whether enough outcomes were seen; (n, horizons)."""
        enough: npt.NDArray[np.bool_] = self._sums[rows, :, _WEIGHT] >= READY_OUTCOMES
        return enough

    def degraded(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Whether the mixture loses to the floor; (n, horizons)."""
        return self._degraded[rows]

    def prefers_seasonal(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Whether the season has been the better floor than the last value; (n, horizons)."""
        seasons = self._sums[rows, :, _SEASONS]
        seasonal = self._sums[rows, :, _SEASONAL] / np.maximum(seasons, 1e-9)
        better: npt.NDArray[np.bool_] = (seasons >= READY_OUTCOMES) & (
            seasonal < np.nan_to_num(self._mean(rows, _LAST))
        )
        return better

    def mean_loss(self, rows: Rows) -> Floats:
        """Decayed mean pinball loss, not a number before the first outcome; (n, horizons)."""
        return self._mean(rows, _MIXTURE)

    def floor_loss(self, rows: Rows) -> Floats:
        """The floor's, as ``mean_loss``."""
        return self._mean(rows, _FLOOR)

    def coverage(self, rows: Rows) -> Floats:
        """Share of outcomes at or under the 0.9 quantile, as ``mean_loss``."""
        return self._mean(rows, _UNDER)

    def band_coverage(self, rows: Rows) -> Floats:
        """Share of outcomes between the 0.1 and the 0.9 quantile, as ``mean_loss``."""
        return self._mean(rows, _INSIDE)

    def rmsse(self, rows: Rows) -> Floats:
        """Root mean squared error over the last value's; not a number where that is never wrong."""
        floor = self._sums[rows, :, _LAST_ERROR]
        ratio = self._sums[rows, :, _ERROR] / np.maximum(floor, 1e-9)
        return np.where(floor > 0.0, np.sqrt(ratio), np.nan)

    def _mean(self, rows: Rows, column: int) -> Floats:
        weights = self._sums[rows, :, _WEIGHT]
        return np.where(
            weights > 0.0, self._sums[rows, :, column] / np.maximum(weights, 1e-9), np.nan
        )


class UseScores:
    """How well "a request within a minute" was foretold, against the constant base rate.

    Whether a curve is worth following is judged on half a minute as well: the base rate of a
    model that is called each minute knows all about the minute and nothing about when.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    """

    def __init__(self, rows: int) -> None:
        self._brier = np.zeros((rows, _LOOKS))
        self._floor = np.zeros((rows, _LOOKS))
        self._came = np.zeros((rows, _LOOKS))
        self._spread = np.zeros(rows)
        self._weight = np.zeros(rows)
        self._degraded = np.zeros(rows, dtype=bool)

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        more = rows - len(self._weight)
        self._brier = np.pad(self._brier, ((0, more), (0, 0)))
        self._floor = np.pad(self._floor, ((0, more), (0, 0)))
        self._came = np.pad(self._came, ((0, more), (0, 0)))
        self._spread = np.pad(self._spread, (0, more))
        self._weight = np.pad(self._weight, (0, more))
        self._degraded = np.pad(self._degraded, (0, more))

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        for by_look in (self._brier, self._floor, self._came):
            by_look[row] = 0.0
        for array in (self._spread, self._weight, self._degraded):
            array[row] = 0

    def learn(self, rows: Rows, foretold: Floats, came: npt.NDArray[np.bool_]) -> None:
        """Outcomes of the probabilities ``foretold``: within half a minute, within a minute.

        Parameters
        ----------
        rows : (n,)
        foretold, came : (n, 2)
        """
        fade = 1.0 - 1.0 / MEMORY_USES
        outcome = came.astype(np.float64)
        brier = np.square(foretold - outcome)
        floor = np.square(self._rates(rows) - outcome)
        self._brier[rows] = fade * self._brier[rows] + brier
        self._floor[rows] = fade * self._floor[rows] + floor
        self._came[rows] = fade * self._came[rows] + outcome
        self._spread[rows] = fade * self._spread[rows] + np.square((brier - floor).sum(axis=1))
        self._weight[rows] = fade * self._weight[rows] + 1.0
        floor_sum = self._floor[rows].sum(axis=1)
        behind = self._brier[rows].sum(axis=1) - floor_sum
        clearly = (behind > _STANDARD_ERRORS * np.sqrt(self._spread[rows])) & (
            behind > (_USE_LOSES_BY - 1.0) * floor_sum
        )
        # Sound again only when it is no longer behind at all, so that it does not flap.
        self._degraded[rows] = (self._came[rows, -1] >= _JUDGED_USES) & (
            clearly | (self._degraded[rows] & (behind > 0.0))
        )

    def degraded(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Whether the curve loses to the base rate; (n,)."""
        return self._degraded[rows]

    def base_rate(self, rows: Rows) -> Floats:
        """Share of minutes with a request; (n,)."""
        return self._rates(rows)[:, -1]

    def briers(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean Brier scores of curve and base rate for a minute; each (n,).

        Not a number before the first outcome.
        """
        weight = self._weight[rows]
        share = np.where(weight > 0.0, 1.0 / np.maximum(weight, 1e-9), np.nan)
        return self._brier[rows, -1] * share, self._floor[rows, -1] * share

    def _rates(self, rows: Rows) -> Floats:
        rates: Floats = (self._came[rows] + 0.5) / (self._weight[rows, None] + 1.0)
        return rates
