"""When a model's habits have changed: River's ADWIN on how far outcomes lie from the usual.

ADWIN keeps a window of errors as long as its halves look alike, and says so when they no
longer do. Where errors have grown, old habits are worth less than nothing, and memory is cut
short; where they have become smaller, habits were learned.
"""

from __future__ import annotations

import math
from typing import Any

from river import drift

_ADWIN: Any = drift.ADWIN
_LEAST_OUTCOMES = 64
"""Before so many outcomes everything is new and nothing is a change."""
_BOUND = 4.0
"""Errors are cut at this, in roots of counts: ADWIN's promise is for bounded ones."""


def fresh_detector() -> Any:
    """One that has seen nothing."""
    # Any: River's detectors carry no types.
    return _ADWIN(grace_period=_LEAST_OUTCOMES)


class DriftWatch:
    """One detector for each row, made when there is something to look at.

    Attributes
    ----------
    drifts : int
        Changes found so far.
    """

    def __init__(self, rows: int) -> None:
        self._detectors: list[Any | None] = [None] * rows
        self.drifts = 0

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        self._detectors.extend([None] * (rows - len(self._detectors)))

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        self._detectors[row] = None

    def changed(self, row: int, error: float) -> bool:
        """Take in one error of outcomes that do not overlap; whether habits have changed."""
        if not math.isfinite(error):
            return False
        detector = self._detectors[row]
        if detector is None:
            detector = self._detectors[row] = fresh_detector()
        usual = detector.estimation
        detector.update(min(abs(error), _BOUND))
        changed = bool(detector.drift_detected) and detector.estimation > usual
        self.drifts += changed
        return changed
