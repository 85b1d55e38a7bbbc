"""Training of the challenger with scikit-learn: for workers and backtests, never for the predictor.

One model per horizon and quantile over all models' looks together, on features that all share.
Settings are chosen from a small grid on the last fifth of the looks, which lies after the rest,
with the longest horizon left out between the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from contracts.errors import Permanent
from contracts.forecasts import HORIZONS_S, QUANTILE_LEVELS
from predictor.batch_challenger import BoostedChallenger, predict
from predictor.batch_features import (
    DAY_MINUTES,
    FEATURES,
    HORIZON_MINUTES,
    MINUTE_S,
    MINUTES_NEEDED,
    bases_of,
    features_of,
    to_root,
)
from predictor.batch_trees import Trees
from predictor.windows import Floats

MAX_ROWS = 40_000
"""Looks times models that are learned from; beyond it looks are farther apart."""
LEAST_ROWS = 2_000
"""With fewer nothing is trained."""
_LOOK_MINUTES = 7
"""Looks are a multiple of this apart: no phase of the hour is preferred."""
_HELD_OUT = 0.2
_CHECKED_ROWS = 500
_TOLERANCE = 1e-6
_LEAST_HISTORY = {"day_": 3 * DAY_MINUTES, "age": 3 * DAY_MINUTES, "week_": 14 * DAY_MINUTES}
"""Minutes of history from which features so named are learned from."""
_GRID_HORIZON = HORIZONS_S.index(300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSettings:
    """What the trees are grown by."""

    learning_rate: float = 0.1
    leaves: int = 15
    iterations: int = 60
    least_rows: int = 40


GRID: tuple[TreeSettings, ...] = tuple(
    TreeSettings(learning_rate=rate, iterations=round(6 / rate), leaves=leaves)
    for rate, leaves in product((0.1, 0.05), (7, 15))
)


@dataclass(frozen=True, slots=True)
class Looks:
    """What was known at each look, and what came.

    Attributes
    ----------
    features : (rows, features)
    outcomes : (rows, horizons)
    at : (rows,)
        The minute of the look.
    """

    features: Floats
    outcomes: Floats
    at: Floats


class Training:
    """Trains challengers on a history.

    Parameters
    ----------
    grid : sequence of TreeSettings
        One alone is taken without comparing.
    """

    def __init__(self, grid: Sequence[TreeSettings] = GRID) -> None:
        self._grid = tuple(grid)
        self.chosen: TreeSettings | None = None
        """The settings of the last training."""

    def train(self, minutes: Floats, end_s: float) -> BoostedChallenger | None:
        """A challenger that has seen ``minutes``, (models, minutes) up to ``end_s``, alone.

        Returns
        -------
        BoostedChallenger or None
            None: too little has happened to learn from.

        Raises
        ------
        Permanent
            The trees as arrays do not say what scikit-learn says.
        """
        looks = looks_at(minutes, end_s)
        if len(looks.at) < LEAST_ROWS:
            return None
        self.chosen = self._grid[0] if len(self._grid) == 1 else _best(self._grid, looks)
        trees = tuple(
            tuple(_grow(self.chosen, looks, horizon, level) for level in QUANTILE_LEVELS)
            for horizon in range(len(HORIZONS_S))
        )
        return BoostedChallenger(trees=trees, trained_until_s=end_s)


def looks_at(minutes: Floats, end_s: float, *, max_rows: int = MAX_ROWS) -> Looks:
    """Looks of which every outcome is known, evenly over the history."""
    total = minutes.shape[1]
    padded = np.pad(minutes, ((0, 0), (MINUTES_NEEDED, 0)), constant_values=np.nan)
    sums = np.concatenate(
        [np.zeros((len(minutes), 1)), np.cumsum(np.nan_to_num(minutes), axis=1)], axis=1
    )
    last = total - HORIZON_MINUTES[-1]
    wanted = max(1.0, max_rows / max(len(minutes), 1))
    stride = _LOOK_MINUTES * max(1, math.ceil(last / _LOOK_MINUTES / wanted))
    blind = _blind(total)
    features, outcomes, at = [], [], []
    for end in range(last, 0, -stride):
        seen = features_of(padded[:, end : end + MINUTES_NEEDED], end_s - (total - end) * MINUTE_S)
        known = np.isfinite(seen[:, 0])
        seen[:, blind] = 0.0
        came = np.stack([sums[:, end + width] - sums[:, end] for width in HORIZON_MINUTES], axis=1)
        features.append(seen[known])
        outcomes.append(came[known])
        at.append(np.full(int(known.sum()), float(end)))
    if not features:
        empty = np.empty((0, 0))
        return Looks(features=empty, outcomes=empty, at=np.empty(0))
    return Looks(
        features=np.concatenate(features), outcomes=np.concatenate(outcomes), at=np.concatenate(at)
    )


def _blind(minutes: int) -> list[int]:
    """Features that so short a history says nothing about: a day was not seen to come again."""
    hidden = [name for name, least in _LEAST_HISTORY.items() if minutes < least]
    return [place for place, name in enumerate(FEATURES) if name.startswith(tuple(hidden) or "?")]


def _best(grid: Sequence[TreeSettings], looks: Looks) -> TreeSettings:
    """The settings that lose least on the looks that come last."""
    border = float(np.quantile(looks.at, 1.0 - _HELD_OUT))
    before = looks.at <= border - HORIZON_MINUTES[-1]
    after = looks.at > border
    if before.sum() < LEAST_ROWS // 2 or not after.any():
        return grid[0]
    early = Looks(looks.features[before], looks.outcomes[before], looks.at[before])
    outcomes = looks.outcomes[after, _GRID_HORIZON]
    losses = []
    for settings in grid:
        trees = [_grow(settings, early, _GRID_HORIZON, level) for level in QUANTILE_LEVELS]
        said = predict([trees] * len(HORIZONS_S), looks.features[after])[:, _GRID_HORIZON]
        over = outcomes[:, None] - said
        levels = np.array(QUANTILE_LEVELS)
        losses.append(float(np.maximum(levels * over, (levels - 1.0) * over).mean()))
    return grid[int(np.argmin(losses))]


def _grow(settings: TreeSettings, looks: Looks, horizon: int, level: float) -> Trees:
    targets = to_root(looks.outcomes[:, horizon]) - bases_of(looks.features)[:, horizon]
    model = HistGradientBoostingRegressor(
        loss="quantile",
        quantile=level,
        learning_rate=settings.learning_rate,
        max_iter=settings.iterations,
        max_leaf_nodes=settings.leaves,
        min_samples_leaf=settings.least_rows,
        early_stopping=False,
        random_state=0,
    )
    model.fit(looks.features, targets)
    trees = _as_arrays(model)
    some = looks.features[:_CHECKED_ROWS]
    if not np.allclose(trees.predict(some), model.predict(some), atol=_TOLERANCE):
        raise Permanent("the trees as arrays do not say what scikit-learn says; its format changed")
    return trees


def _as_arrays(model: Any) -> Trees:
    """The trees of a fitted model, all padded to the longest."""
    nodes = [stage[0].nodes for stage in model._predictors]
    longest = max(len(tree) for tree in nodes)
    shape = (len(nodes), longest)
    stay = np.tile(np.arange(longest, dtype=np.int32), (len(nodes), 1))
    feature, left, right = np.zeros(shape, np.int32), stay.copy(), stay.copy()
    threshold, value = np.zeros(shape), np.zeros(shape)
    depth = 0
    for number, tree in enumerate(nodes):
        inner = np.flatnonzero(tree["is_leaf"] == 0)
        feature[number, inner] = tree["feature_idx"][inner]
        left[number, inner] = tree["left"][inner]
        right[number, inner] = tree["right"][inner]
        threshold[number, inner] = tree["num_threshold"][inner]
        value[number, : len(tree)] = tree["value"]
        depth = max(depth, int(tree["depth"].max()))
    baseline = float(np.ravel(model._baseline_prediction)[0])
    return Trees(baseline, feature, threshold, left, right, value, depth)
