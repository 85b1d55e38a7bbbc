"""Which expert to believe: a weight for each, learned online from what came.

Experts are pooled by the logarithm of their hazards. Weights are those of a regression of
"a request comes within the next half window" with the complementary log-log link, for which
the probability of such a hazard is exact. They are kept as a normal belief (mean and
precision) that each outcome sharpens and that relaxes towards its prior as time goes by, so
that days without a request can't carry it away.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from predictor.windows import Floats

_LOWEST, _HIGHEST = -14.0, 3.0
"""Bounds of a log hazard: once in a week, and certain."""
_LONGEST_STEP = 0.5
"""No batch moves a weight by more than this, whatever it seems to say."""


class HazardPool:
    """Weights of the experts in each context.

    Parameters
    ----------
    prior : (contexts, experts) array
        Weights before anything is learned.
    precision : (experts,) array
        How firmly: one over the variance of each weight.
    memory : float
        Batches after which what was learned has faded to a third.
    """

    def __init__(self, prior: Floats, precision: Floats, *, memory: float) -> None:
        self._prior = prior
        self._prior_precision = np.diag(precision)
        self._fade = 1.0 - 1.0 / memory
        self._weights = prior.copy()
        self._precision = np.stack([self._prior_precision] * len(prior))

    @property
    def weights(self) -> Floats:
        """Present weights, (contexts, experts)."""
        return self._weights.copy()

    def log_hazard(self, features: Floats, base: Floats, contexts: npt.NDArray[np.intp]) -> Floats:
        """Pooled log hazard; (n, experts), (n,) and (n,) give (n,)."""
        pooled: Floats = base + np.einsum("ne,ne->n", features, self._weights[contexts])
        return np.clip(pooled, _LOWEST, _HIGHEST)

    def learn(
        self,
        features: Floats,
        base: Floats,
        contexts: npt.NDArray[np.intp],
        came: npt.NDArray[np.bool_],
    ) -> None:
        """Outcomes of one batch of forecasts, as ``log_hazard`` was asked for them."""
        hazard = np.exp(self.log_hazard(features, base, contexts))
        # Slope and curvature of the log likelihood along the log hazard: -H without a
        # request, log(1 - exp(-H)) with one. Observed curvature; the expected one runs away.
        ratio = hazard / np.expm1(hazard)
        slope = np.where(came, ratio, -hazard)
        curvature = np.where(came, ratio * (hazard + ratio - 1.0), hazard)
        for context in range(len(self._weights)):
            inside = contexts == context
            x = features[inside]
            self._relax(context)
            precision = self._precision[context] + (x * curvature[inside, None]).T @ x
            step = np.linalg.solve(precision, x.T @ slope[inside])
            longest = float(np.abs(step).max())
            if not np.isfinite(longest):
                continue
            self._precision[context] = precision
            self._weights[context] += step * min(1.0, _LONGEST_STEP / max(longest, 1e-12))

    def _relax(self, context: int) -> None:
        learned = self._fade * self._precision[context]
        given = (1.0 - self._fade) * self._prior_precision
        mean = learned @ self._weights[context] + given @ self._prior[context]
        self._precision[context] = learned + given
        self._weights[context] = np.linalg.solve(self._precision[context], mean)
