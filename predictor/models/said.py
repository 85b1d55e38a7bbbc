"""What all methods said of the models' next arrivals, side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from predictor.windows import Floats


@dataclass(frozen=True, slots=True)
class Said:
    """What all methods said of one horizon.

    Attributes
    ----------
    expected : (n, methods)
        Counts; not a number where one has no opinion.
    roots : (n, methods, levels)
    weights : (n, methods)
    mixed : (n, levels)
    means : (n, methods)
    """

    expected: Floats
    roots: Floats
    weights: Floats
    mixed: Floats
    means: Floats

    @property
    def mean(self) -> Floats:
        """The mixture's, (n,)."""
        mean: Floats = (self.weights * np.nan_to_num(self.means)).sum(axis=1)
        return mean

    def only(self, valid: npt.NDArray[np.bool_]) -> Said:
        """Of these rows alone."""
        return Said(
            self.expected[valid],
            self.roots[valid],
            self.weights[valid],
            self.mixed[valid],
            self.means[valid],
        )
