"""A challenger of one small tree each, for snapshots that nobody had to train."""

from __future__ import annotations

import numpy as np

from contracts.forecasts import HORIZONS_S, QUANTILE_LEVELS
from predictor.batch_challenger import BoostedChallenger
from predictor.batch_trees import Trees


def stump(value: float) -> Trees:
    """One tree: left where there was a request in the last minute."""
    return Trees(
        baseline=0.1,
        feature=np.array([[0, 0, 0]], dtype=np.int32),
        threshold=np.array([[1.0, 0.0, 0.0]]),
        left=np.array([[1, 1, 2]], dtype=np.int32),
        right=np.array([[2, 1, 2]], dtype=np.int32),
        value=np.array([[0.0, value, value + 1.0]]),
        depth=1,
    )


CHALLENGER = BoostedChallenger(
    trees=tuple(
        tuple(stump(0.5 * level) for level in range(len(QUANTILE_LEVELS)))
        for _ in range(len(HORIZONS_S))
    ),
    trained_until_s=1.7e9,
    promoted=True,
)
