"""Scores of a backtest: what each method lost, against the naive ones, over many looks.

All sums run over the same looks for every method, so that rows can be compared. Sources:

* Pinball loss: Koenker and Bassett, "Regression Quantiles", Econometrica 46 (1978); the mean
  over ``QUANTILE_LEVELS``, as in Makridakis et al., "The M5 uncertainty competition" (2022).
  Scaled here by the loss of the seasonal naive forecast on the very same looks, both summed
  over models, so a model weighs as much as it is used and none divides by nothing.
* RMSSE: Hyndman and Koehler, "Another look at measures of forecast accuracy" (2006), in squares
  as in M5: per model the root of the mean squared error over that of the last value; the mean
  over models for which the last value was ever wrong.
* Coverage: share of outcomes between the 0.1 and the 0.9 quantile. Counts have ties: of a model
  that is hardly ever used nearly every outcome is the zero that is the band's lower end as well
  as its upper one, and 99 % of outcomes lie in [0, 0]. So of an outcome the part counts that lies
  in the band: it takes up the stretch of probability from P(less) to P(at most) (the idea of the
  probability integral transform for counts, Czado, Gneiting and Held, Biometrics 65 (2009)), read
  off the four quantiles; a right law has 0.8 whatever its ties. ``closed`` is the plain share
  with both ends included.
* Brier score: Brier, "Verification of forecasts expressed in terms of probability" (1950).
* Reliability: Murphy and Winkler (1977): in each tenth of the probability, mean forecast less
  share of events; the largest of these in tenths with at least ``RELIABLE_CASES`` looks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from contracts.forecasts import QUANTILE_LEVELS
from predictor.windows import Floats, Rows

RELIABLE_CASES = 200
"""Fewer looks than this in a tenth say little about it."""
_BINS = 10
_LEVELS: Floats = np.array(QUANTILE_LEVELS)
_LOW, _HIGH = (QUANTILE_LEVELS.index(level) for level in (0.1, 0.9))
_BAND = (0.1, 0.9)
_REACHED: Floats = np.array([0.0, *QUANTILE_LEVELS, 1.0])


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalScore:
    """One method at one horizon; None where nothing can be said.

    Attributes
    ----------
    mute_ratio : float
        Share of looks at which it had no opinion and the last value stood in for it.
    """

    scaled_pinball: float | None
    rmsse: float | None
    coverage_80: float | None
    coverage_80_closed: float | None
    mute_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decile:
    """What became of probabilities in one tenth."""

    foretold: float
    came: float
    cases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UseScore:
    """One method's "a request within the horizon"."""

    brier: float | None
    reliability_max_error: float | None
    deciles: tuple[Decile, ...]


def band_share(quantiles: Floats, outcomes: Floats) -> Floats:
    """How much of each outcome lies in the 80 % band; (n, methods, levels), (n,): (n, methods).

    Between two quantiles the law is taken to have reached the middle of their levels.
    """
    up_to = _reached(quantiles, outcomes)
    below = np.where(outcomes[:, None] > 0.0, _reached(quantiles, outcomes - 1.0), 0.0)
    stretch = up_to - below
    inside = np.minimum(up_to, _BAND[1]) - np.maximum(below, _BAND[0])
    certain = (below >= _BAND[0]) & (up_to <= _BAND[1])
    shares: Floats = np.where(
        stretch > 0.0, np.clip(inside, 0.0, None) / np.where(stretch > 0.0, stretch, 1.0), certain
    )
    return shares


def _reached(quantiles: Floats, at: Floats) -> Floats:
    """P(count <= at), as far as four quantiles tell."""
    passed = (quantiles <= at[:, None, None]).sum(axis=2)
    reached: Floats = (_REACHED[passed] + _REACHED[passed + 1]) / 2.0
    return reached


class ArrivalTally:
    """Sums at one horizon, for each of ``methods`` and models.

    Parameters
    ----------
    methods : int
        Method number ``unit`` is the seasonal naive one, whose loss is 1.
    """

    def __init__(self, *, methods: int, models: int, unit: int) -> None:
        self._unit = unit
        self._losses = np.zeros((methods, models))
        self._squares = np.zeros((methods, models))
        self._naive_squares = np.zeros(models)
        self._covered = np.zeros((methods, 2))
        self._spoke = np.zeros(methods)
        self._mute = np.zeros(methods)
        self.looks = 0

    def add(
        self,
        models: Rows,
        quantiles: Floats,
        means: Floats,
        outcomes: Floats,
        last_values: Floats,
    ) -> None:
        """One look.

        Parameters
        ----------
        models, outcomes, last_values : (n,)
        quantiles : (n, methods, levels)
            Not a number where a method has no opinion: the last value stands in.
        means : (n, methods)
        """
        mute: npt.NDArray[np.bool_] = ~np.all(np.isfinite(quantiles), axis=2)
        quantiles = np.where(mute[:, :, None], last_values[:, None, None], quantiles)
        means = np.where(np.isfinite(means) & ~mute, means, last_values[:, None])
        over = outcomes[:, None, None] - quantiles
        losses = np.maximum(_LEVELS * over, (_LEVELS - 1.0) * over).mean(axis=2)
        self._losses[:, models] += losses.T
        self._squares[:, models] += np.square(outcomes[:, None] - means).T
        self._naive_squares[models] += np.square(outcomes - last_values)
        closed = (quantiles[:, :, _LOW] <= outcomes[:, None]) & (
            outcomes[:, None] <= quantiles[:, :, _HIGH]
        )
        for place, inside in enumerate((band_share(quantiles, outcomes), closed)):
            self._covered[:, place] += np.where(mute, 0.0, inside).sum(axis=0)
        self._spoke += (~mute).sum(axis=0)
        self._mute += mute.sum(axis=0)
        self.looks += len(models)

    def score(self, method: int) -> ArrivalScore:
        """What ``method`` is worth."""
        return ArrivalScore(
            scaled_pinball=_ratio(self._losses[method].sum(), self._losses[self._unit].sum()),
            rmsse=self._rmsse(method),
            coverage_80=_ratio(self._covered[method, 0], self._spoke[method]),
            coverage_80_closed=_ratio(self._covered[method, 1], self._spoke[method]),
            mute_ratio=_ratio(self._mute[method], float(self.looks)) or 0.0,
        )

    def losses_by_model(self, method: int) -> Floats:
        """Scaled loss of each model; not a number where the unit lost nothing."""
        unit = self._losses[self._unit]
        return np.where(unit > 0.0, self._losses[method] / np.where(unit > 0.0, unit, 1.0), np.nan)

    def _rmsse(self, method: int) -> float | None:
        wrong = self._naive_squares > 0.0
        if not wrong.any():
            return None
        return float(np.sqrt(self._squares[method, wrong] / self._naive_squares[wrong]).mean())


class UseTally:
    """Sums at one horizon of "at least one request within it", for each of ``methods``."""

    def __init__(self, methods: int) -> None:
        self._brier = np.zeros(methods)
        self._known = np.zeros(methods)
        self._cases = np.zeros((methods, _BINS))
        self._foretold = np.zeros((methods, _BINS))
        self._came = np.zeros((methods, _BINS))

    def add(self, probabilities: Floats, came: npt.NDArray[np.bool_]) -> None:
        """One look: (n, methods), not a number where there is no opinion, and (n,)."""
        outcomes = came.astype(np.float64)
        for method in range(probabilities.shape[1]):
            known = np.isfinite(probabilities[:, method])
            foretold, outcome = probabilities[known, method], outcomes[known]
            self._brier[method] += np.square(foretold - outcome).sum()
            self._known[method] += len(foretold)
            bins = np.clip((foretold * _BINS).astype(np.intp), 0, _BINS - 1)
            self._cases[method] += np.bincount(bins, minlength=_BINS)
            self._foretold[method] += np.bincount(bins, weights=foretold, minlength=_BINS)
            self._came[method] += np.bincount(bins, weights=outcome, minlength=_BINS)

    def score(self, method: int) -> UseScore:
        """What ``method`` is worth."""
        deciles = tuple(
            Decile(foretold=foretold / cases, came=came / cases, cases=int(cases))
            for foretold, came, cases in zip(
                self._foretold[method].tolist(),
                self._came[method].tolist(),
                self._cases[method].tolist(),
                strict=True,
            )
            if cases
        )
        errors = [abs(d.foretold - d.came) for d in deciles if d.cases >= RELIABLE_CASES]
        return UseScore(
            brier=_ratio(self._brier[method], self._known[method]),
            reliability_max_error=max(errors, default=None),
            deciles=deciles,
        )


def _ratio(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0.0 else None
