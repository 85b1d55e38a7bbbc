"""Boosted trees as plain arrays: evaluated by numpy, so that what is stored is numbers alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from contracts.errors import Invalid
from predictor.windows import Floats

_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Trees:
    """The sum of many trees.

    Attributes
    ----------
    feature, left, right : (trees, nodes) of int32
        Leaves lead to themselves.
    threshold, value : (trees, nodes)
        A row goes left where its feature is at or under the threshold; what is not a number
        goes right.
    """

    baseline: float
    feature: npt.NDArray[np.int32]
    threshold: Floats
    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    value: Floats
    depth: int

    def predict(self, features: Floats) -> Floats:
        """(n, features) gives (n,)."""
        trees = np.arange(self.feature.shape[0])
        rows = np.arange(len(features))[:, None]
        place = np.zeros((len(features), len(trees)), dtype=np.int32)
        for _ in range(self.depth):
            asked = features[rows, self.feature[trees, place]]
            goes_left = asked <= self.threshold[trees, place]
            place = np.where(goes_left, self.left[trees, place], self.right[trees, place])
        summed: Floats = self.value[trees, place].sum(axis=1) + self.baseline
        return summed

    def check(self, features: int) -> None:
        """Refuse arrays that do not make trees over so many features. Raises Invalid."""
        shape = self.feature.shape
        arrays = (self.threshold, self.left, self.right, self.value)
        if len(shape) != 2 or any(array.shape != shape for array in arrays):
            raise Invalid("trees: the arrays do not fit together")
        in_range = all(
            bool(((array >= 0) & (array < limit)).all())
            for array, limit in (
                (self.feature, features),
                (self.left, shape[1]),
                (self.right, shape[1]),
            )
        )
        finite = bool(np.isfinite(self.value).all()) and bool(np.isfinite(self.baseline))
        if not in_range or not finite or not 0 <= self.depth <= _MAX_DEPTH:
            raise Invalid("trees: a number is out of range")
