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

from predictor.models.experts import CONTEXTS, EXPERTS, OWN_GAPS
from predictor.windows import Floats, Rows

_LOWEST, _HIGHEST = -14.0, 14.0
"""Bounds of a log hazard: of a second in a week, and of hundreds a second for an hour."""
_CERTAIN = 30.0
"""More hazard than this changes nothing that could be learned."""
_LONGEST_STEP = 0.5
"""No batch moves a weight by more than this, whatever it seems to say."""
_PRIOR_SPREAD = 0.5
"""Weights lie within about one of their prior: an expert is ignored, believed, or doubled."""
_MEMORY_BATCHES = 2000.0
"""What was learned fades in about a day of batches, so that new habits of callers get through."""


class HazardPool:
    """Weights of the experts in each context. It starts as own gaps alone."""

    def __init__(self) -> None:
        self._prior = np.zeros((CONTEXTS, EXPERTS))
        self._prior[:, OWN_GAPS] = 1.0
        self._prior_precision = np.eye(EXPERTS) / _PRIOR_SPREAD**2
        self._weights = self._prior.copy()
        self._precision = np.stack([self._prior_precision] * CONTEXTS)

    @property
    def weights(self) -> Floats:
        """Present weights, (contexts, experts)."""
        return self._weights.copy()

    def hazard(self, features: Floats, base: Floats, contexts: Rows) -> Floats:
        """Pooled hazard; (n, experts, delays), (n, delays) and (n,) give (n, delays).

        It is never decreasing along the delays.
        """
        pooled = base + np.einsum("ned,ne->nd", features, self._weights[contexts])
        hazard: Floats = np.exp(np.clip(pooled, _LOWEST, _HIGHEST))
        return np.maximum.accumulate(hazard, axis=1, out=hazard)

    def learn(
        self, features: Floats, hazard: Floats, contexts: Rows, came: npt.NDArray[np.bool_]
    ) -> None:
        """Outcomes of one batch of forecasts.

        Parameters
        ----------
        features : (n, experts)
        hazard : (n,)
            What the pool had made of them.
        contexts, came : (n,)
        """
        # Slope and curvature of the log likelihood along the log hazard: -H without a
        # request, log(1 - exp(-H)) with one. Observed curvature; the expected one runs away.
        bounded = np.minimum(hazard, _CERTAIN)
        ratio = bounded / np.expm1(bounded)
        slope = np.where(came, ratio, -bounded)
        curvature = np.where(came, ratio * (bounded + ratio - 1.0), bounded)
        for context in range(CONTEXTS):
            inside = contexts == context
            self._update(context, features[inside], slope[inside], curvature[inside])

    def _update(self, context: int, features: Floats, slope: Floats, curvature: Floats) -> None:
        fade = 1.0 - 1.0 / _MEMORY_BATCHES
        learned = fade * self._precision[context]
        given = (1.0 - fade) * self._prior_precision
        mean = learned @ self._weights[context] + given @ self._prior[context]
        weights = np.linalg.solve(learned + given, mean)
        precision = learned + given + (features * curvature[:, None]).T @ features
        step = np.linalg.solve(precision, features.T @ slope)
        self._precision[context] = precision
        longest = float(np.abs(step).max())
        self._weights[context] = weights + step * min(1.0, _LONGEST_STEP / max(longest, 1e-12))
