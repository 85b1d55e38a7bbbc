"""One regression for all models: how many times more than its plain rate each may expect.

What a model's own history says of the next minutes (its rates, its times of day, what came a
moment ago) means about the same for every model. So one set of weights per horizon is learned
from the outcomes of all, and a model that is new is forecast by what the others have taught.

The law is log-linear: log mean = log(plain rate) + weights x log ratios. Counts vary more than
pure chance has it, so an outcome corrects by no more than its own scale (negative binomial of
one). Weights are a normal belief that outcomes sharpen and that relaxes towards its prior.
"""

from __future__ import annotations

import numpy as np

from predictor.windows import Floats

METHOD = "pooled_rate"

_PRIOR_SPREAD = 0.5
"""Weights lie within about this of zero, the plain rate: no source is believed threefold."""
_MEMORY_BATCHES = 2000.0
"""Outcomes of whole horizons after which what was learned has faded."""
_LOWEST, _HIGHEST = -12.0, 21.0
"""Bounds of a log count: far less than one in an hour, and a thousand million."""
_MOST = 50.0
"""One outcome pulls no harder than this, whatever it was."""
_LONGEST_STEP = 0.5


class PooledRate:
    """Weights of one horizon.

    Parameters
    ----------
    features : int
        Columns of what is learned from.
    share : float
        How much new an outcome is: 1 for horizons that do not overlap.

    Attributes
    ----------
    resets : int
        How often it was started afresh because something was not finite.
    """

    def __init__(self, features: int, *, share: float) -> None:
        self._share = share
        self._fade = 1.0 - share / _MEMORY_BATCHES
        self._prior_precision = np.eye(features) / _PRIOR_SPREAD**2
        self.resets = 0
        self._start()

    def _start(self) -> None:
        self._weights = np.zeros(len(self._prior_precision))
        self._precision = self._prior_precision.copy()

    def expected(self, features: Floats, bases: Floats) -> Floats:
        """Mean counts, positive and finite; (n, features) and (n,) log plain counts give (n,)."""
        means: Floats = np.exp(np.clip(features @ self._weights + bases, _LOWEST, _HIGHEST))
        return means

    def learn(self, features: Floats, means: Floats, outcomes: Floats) -> None:
        """``outcomes`` came where ``means`` were expected; (n, features), (n,), (n,)."""
        spread = 1.0 + means
        pull = np.clip((outcomes - means) / spread, -_MOST, _MOST)
        # Observed curvature: with the expected one the weights run away in long silences.
        curvature = np.minimum(means * (1.0 + outcomes) / spread**2, _MOST)
        learned = self._fade * self._precision
        given = (1.0 - self._fade) * self._prior_precision
        weights = np.linalg.solve(learned + given, learned @ self._weights)
        precision = learned + given + self._share * (features * curvature[:, None]).T @ features
        step = np.linalg.solve(precision, self._share * (features.T @ pull))
        longest = float(np.abs(step).max())
        self._precision = precision
        self._weights = weights + step * min(1.0, _LONGEST_STEP / max(longest, 1e-12))
        if not (np.isfinite(self._weights).all() and np.isfinite(precision).all()):
            self.resets += 1
            self._start()
