"""A River regression per model: how many requests come within each horizon.

It learns in square roots of counts, from scaled features, and only how far the outcome lies
from what the regression of all models says: so it starts as that and not from zero. It is guarded
in this one place: what is not finite resets the model, and no forecast leaves the range that
outcomes have shown to be possible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from river import linear_model, optim, preprocessing

from contracts.forecasts import HORIZONS_S

METHOD = "river_linear"

_BEYOND_SEEN = 1.5
"""A forecast may exceed the largest root seen by this: about twice its count."""
_LEAST_ROOT = 1.2
"""Which is always allowed: a single request."""
_FEATURE_LIMIT = 3.0
"""Scaled features are cut at three deviations, so that one outlier can't throw the weights."""
_LEARNING_RATE = 0.02
"""Features are divided by the root of their number, so that a step corrects this share of an
error whatever their number: fifty outcomes make most of the way, and no step overshoots."""


class RiverRate:
    """``StandardScaler | LinearRegression`` for each horizon; the scaler is shared.

    Attributes
    ----------
    resets : int
        How often it was started afresh because something was not finite.
    """

    __slots__ = ("_largest", "_regressions", "_scaler", "resets")

    def __init__(self) -> None:
        self.resets = 0
        self._start()

    def _start(self) -> None:
        # Any: River's estimators carry no types.
        self._scaler: Any = preprocessing.StandardScaler()
        self._regressions: list[Any] = [
            linear_model.LinearRegression(
                optimizer=optim.SGD(_LEARNING_RATE), intercept_lr=_LEARNING_RATE
            )
            for _ in HORIZONS_S
        ]
        self._largest = [0.0] * len(HORIZONS_S)

    def see(self, features: Mapping[str, float]) -> None:
        """Let the scaler know the features that forecasts are made from."""
        if all(map(math.isfinite, features.values())):
            self._scaler.learn_one(features)

    def learn(
        self, features: Mapping[str, float], horizon: int, base_root: float, root: float
    ) -> None:
        """The outcome of horizon number ``horizon`` was ``root`` where the guess was the base."""
        scaled = self._scaled(features)
        if scaled is None or not math.isfinite(root - base_root):
            return
        self._largest[horizon] = max(self._largest[horizon], root)
        self._regressions[horizon].learn_one(scaled, root - base_root)

    def forecast(
        self, features: Mapping[str, float], horizon: int, base_root: float
    ) -> float | None:
        """A root, finite and at least 0; None when it has no opinion or was reset."""
        scaled = self._scaled(features)
        if scaled is None:
            return None
        root: float = base_root + self._regressions[horizon].predict_one(scaled)
        if not math.isfinite(root):
            self.resets += 1
            self._start()
            return None
        highest = max(_BEYOND_SEEN * self._largest[horizon], _LEAST_ROOT)
        return min(max(root, 0.0), highest)

    def _scaled(self, features: Mapping[str, float]) -> dict[str, float] | None:
        if not all(map(math.isfinite, features.values())):
            return None
        share = 1.0 / math.sqrt(len(features))
        return {
            name: share * min(max(value, -_FEATURE_LIMIT), _FEATURE_LIMIT)
            for name, value in self._scaler.transform_one(features).items()
        }
