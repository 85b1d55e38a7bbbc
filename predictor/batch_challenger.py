"""The challenger: boosted trees over all models, trained in a worker, evaluated by numpy alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contracts.errors import Invalid
from contracts.forecasts import HORIZONS_S, QUANTILE_LEVELS
from predictor.batch_features import FEATURES, MINUTES_NEEDED, bases_of, features_of, from_root
from predictor.batch_trees import Trees
from predictor.windows import Floats

NAME = "boosted"
_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class BoostedChallenger:
    """Quantiles of arrivals for any model by its last day.

    Attributes
    ----------
    trees : tuple of tuple of Trees
        By horizon, then by level: how far the root of the count lies from a plain rate's.
    trained_until_s : float
        It has seen nothing later than this.
    promoted : bool
        Whether it was better than what is published, over the last week.
    """

    trees: tuple[tuple[Trees, ...], ...]
    trained_until_s: float
    promoted: bool = False

    @property
    def name(self) -> str:
        """As a method of forecasts."""
        return NAME

    @property
    def minutes_needed(self) -> int:
        """Minutes of history that it looks at."""
        return MINUTES_NEEDED

    def quantiles(self, minutes: Floats, end_s: float) -> Floats:
        """Counts at ``QUANTILE_LEVELS`` within each of ``HORIZONS_S``.

        Parameters
        ----------
        minutes : (n, MINUTES_NEEDED)
            Counts per minute, oldest first, not a number where nothing is known.
        end_s : float
            End of the last of them.

        Returns
        -------
        (n, horizons, levels), never decreasing along the levels and at least 0; not a number
        for models that have been known for less than an hour.
        """
        found = np.empty((len(minutes), len(HORIZONS_S), len(QUANTILE_LEVELS)))
        for start in range(0, len(minutes), _AT_ONCE):
            some = minutes[start : start + _AT_ONCE]
            found[start : start + len(some)] = predict(self.trees, features_of(some, end_s))
        return found

    def check(self) -> None:
        """Refuse what cannot be evaluated. Raises Invalid."""
        if len(self.trees) != len(HORIZONS_S) or any(
            len(levels) != len(QUANTILE_LEVELS) for levels in self.trees
        ):
            raise Invalid("trees: not one for each horizon and level")
        for levels in self.trees:
            for trees in levels:
                trees.check(len(FEATURES))


def predict(trees: Sequence[Sequence[Trees]], features: Floats) -> Floats:
    """Quantiles from features; see ``BoostedChallenger.quantiles``."""
    bases = bases_of(features)
    said = np.stack(
        [np.stack([one.predict(features) for one in levels], axis=1) for levels in trees], axis=1
    )
    # Quantiles of counts are counts; a band from 0.02 on would not hold the nothing that came.
    whole = np.rint(from_root(bases[:, :, None] + said))
    counts: Floats = np.maximum.accumulate(whole, axis=2)
    counts[np.isnan(features).any(axis=1)] = np.nan
    return counts
