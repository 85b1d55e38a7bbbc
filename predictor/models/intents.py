"""Signs that a request may follow: a UI listed the models, somebody picked one."""

from __future__ import annotations

import numpy as np

from predictor.windows import Floats, Rows

_FADE_S = 60.0
"""A sign is worth a third after a minute: people type their first message in about that."""
_LONG_AGO_S = 1e9


class Intents:
    """When each row was last picked, and when the list was last read.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    """

    def __init__(self, rows: int) -> None:
        self._picked_s = np.full(rows, -np.inf)
        self._listed_s = -np.inf

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        more = rows - len(self._picked_s)
        self._picked_s = np.pad(self._picked_s, (0, more), constant_values=-np.inf)

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        self._picked_s[row] = -np.inf

    def rewind(self, now_s: float) -> None:
        """The clock was set back: nothing is newer than that."""
        self._picked_s = np.minimum(self._picked_s, now_s)
        self._listed_s = min(self._listed_s, now_s)

    def pick(self, row: int, at_s: float) -> None:
        """Somebody chose the model of ``row``."""
        self._picked_s[row] = max(float(self._picked_s[row]), at_s)

    def list_all(self, at_s: float) -> None:
        """Somebody looked which models there are."""
        self._listed_s = max(self._listed_s, at_s)

    def freshness(self, rows: Rows, now_s: float) -> Floats:
        """Of picks and lists, from 1 just now to 0 long ago; (n, 2)."""
        picked_s = np.clip(now_s - self._picked_s[rows], 0.0, _LONG_AGO_S)
        listed_s = np.clip(now_s - self._listed_s, 0.0, _LONG_AGO_S)
        ages_s = np.stack([picked_s, np.full(len(rows), listed_s)], axis=1)
        fresh: Floats = np.exp(-ages_s / _FADE_S)
        return fresh
