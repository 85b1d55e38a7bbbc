"""Whom to believe, model by model: weights that follow each method's own past loss.

Exponential weights (Hedge): a method's weight falls with its loss, counted in units of the
mixture's own mean loss at that model, so that no scale has to be set. A small share of all
weight goes back to the start after each outcome (fixed share, Herbster and Warmuth), so that a
method that was wrong for months can lead again within days. The start favours the regression
that all models share: with it a new model is forecast as the population is.
"""

from __future__ import annotations

import numpy as np

from predictor.windows import Floats, Rows

_PULL = 0.5
"""How fast weights follow: a method that loses one more mean loss keeps 60 % of its weight."""
_RETURNED = 0.005
"""Goes back to the start after each outcome."""
_WORST = 50.0
_MEMORY_OUTCOMES = 200.0
_IMAGINED_LOSS = 0.1
"""One outcome that cost this much stands for the scale before any is known."""
_SMALLEST_LOSS = 1e-6


class HedgeWeights:
    """Weights of the methods for each row at one horizon.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    start : (methods,)
        Weights before anything is known, adding up to 1.
    share : float
        How much new an outcome is: 1 for horizons that do not overlap.
    """

    def __init__(self, rows: int, start: Floats, *, share: float) -> None:
        self._start = start
        self._share = share
        self._weights = np.tile(start, (rows, 1))
        self._loss = np.zeros(rows)
        self._count = np.zeros(rows)

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        more = rows - len(self._loss)
        self._weights = np.concatenate([self._weights, np.tile(self._start, (more, 1))])
        self._loss = np.pad(self._loss, (0, more))
        self._count = np.pad(self._count, (0, more))

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        self._weights[row] = self._start
        self._loss[row] = self._count[row] = 0.0

    def of(self, rows: Rows, speaks: Floats) -> Floats:
        """Weights of the methods that speak (n, methods), adding up to 1 in each row."""
        weights = np.where(speaks, self._weights[rows], 0.0)
        total = weights.sum(axis=1, keepdims=True)
        shares: Floats = weights / np.maximum(total, 1e-300)
        return shares

    def learn(self, rows: Rows, losses: Floats, own_losses: Floats) -> None:
        """Losses of the methods (n, methods) and of the mixture (n,); not a number: was mute.

        Who was mute is judged as the mixture: no credit, no blame.
        """
        fade = 1.0 - self._share / _MEMORY_OUTCOMES
        self._loss[rows] = fade * self._loss[rows] + self._share * own_losses
        self._count[rows] = fade * self._count[rows] + self._share
        scale = (self._loss[rows] + _IMAGINED_LOSS) / (self._count[rows] + 1.0)
        filled = np.where(np.isfinite(losses), losses, own_losses[:, None])
        over = np.clip(filled / np.maximum(scale, _SMALLEST_LOSS)[:, None], 0.0, _WORST)
        # Only differences count; the best of them must not vanish with the others.
        over -= over.min(axis=1, keepdims=True)
        weights = self._weights[rows] * np.exp(-_PULL * self._share * over)
        weights /= weights.sum(axis=1, keepdims=True)
        back = _RETURNED * self._share
        self._weights[rows] = (1.0 - back) * weights + back * self._start
