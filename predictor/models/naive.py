"""The floor that every forecast has to beat: the last value, and one season ago.

The season is a day; where yesterday is not known yet, an hour.
"""

from __future__ import annotations

import numpy as np

from contracts.forecasts import HORIZONS_S
from predictor.windows import CountWindow, Floats, Rows

DAY_S = 86_400.0

LAST_VALUE = "naive_last_value"
SEASONAL = "naive_seasonal"


def last_value(recent: CountWindow, rows: Rows, now_s: float, rates_per_s: Floats) -> Floats:
    """What came in the last horizon will come in the next.

    ``rates_per_s`` (n,) stands in for models that are younger than a horizon.

    Returns
    -------
    (n, horizons) array of counts.
    """
    counts = np.stack([recent.totals(rows, now_s, horizon_s) for horizon_s in HORIZONS_S], axis=1)
    expected = rates_per_s[:, None] * np.array(HORIZONS_S)
    return np.where(np.isnan(counts), expected, counts)


def ago(minutes: CountWindow, rows: Rows, now_s: float, season_s: float) -> Floats:
    """What came one season ago in the same horizon will come again.

    Returns
    -------
    (n, horizons) array of counts, not a number where that time is not known.
    """
    columns = [
        minutes.totals(rows, now_s - season_s + horizon_s, horizon_s) for horizon_s in HORIZONS_S
    ]
    return np.stack(columns, axis=1)
