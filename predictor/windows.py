"""Counts per bucket of time for many models at once, with gaps that are not zeros.

All models share one ring of buckets and one newest bucket, so a step of time is one step for
all. A bucket is missing (None) before its model was first seen and where nobody was watching;
between those it is a count, and zero means that nothing came.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Rows: TypeAlias = npt.NDArray[np.intp]

_NEVER = np.iinfo(np.int64).max


class CountWindow:
    """The last ``buckets`` buckets of ``width_s`` seconds for each row.

    Parameters
    ----------
    width_s : float
        Length of a bucket; buckets begin at whole multiples of it.
    buckets : int
        How many are kept, the newest included.
    rows : int
        Models that there is room for; ``grow`` makes more.
    """

    def __init__(self, *, width_s: float, buckets: int, rows: int) -> None:
        self.width_s = width_s
        self.buckets = buckets
        self.too_late = 0
        """Arrivals older than all that is kept, so far; they are not counted."""
        self._counts = np.zeros((rows, buckets), dtype=np.int32)
        self._missing = np.ones(buckets, dtype=bool)
        self._since = np.full(rows, _NEVER, dtype=np.int64)
        self._newest: int | None = None

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        more = rows - len(self._since)
        self._counts = np.pad(self._counts, ((0, more), (0, 0)))
        self._since = np.pad(self._since, (0, more), constant_values=_NEVER)

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        self._counts[row] = 0
        self._since[row] = _NEVER

    def add(self, row: int, at_s: float) -> None:
        """Count one arrival, also a late one while its bucket is kept."""
        bucket = self._bucket(at_s)
        newest = self._advance(bucket, watched=True)
        if bucket <= newest - self.buckets:
            self.too_late += 1
            return
        self._counts[row, bucket % self.buckets] += 1
        self._missing[bucket % self.buckets] = False
        self._since[row] = min(self._since[row], bucket)

    def advance(self, now_s: float, *, watched: bool) -> None:
        """Let time pass up to the bucket of ``now_s``.

        ``watched`` False: nobody could have seen an arrival meanwhile (the machine slept, or
        the clock was set forward), so the buckets in between are missing, not empty.
        """
        self._advance(self._bucket(now_s), watched=watched)

    def rewind(self, now_s: float) -> None:
        """The clock was set back: what was counted after ``now_s`` never happened."""
        bucket = self._bucket(now_s)
        if self._newest is None or bucket >= self._newest:
            return
        gone = np.arange(max(bucket + 1, self._newest - self.buckets + 1), self._newest + 1)
        self._counts[:, gone % self.buckets] = 0
        self._missing[gone % self.buckets] = True
        self._newest = bucket
        self._since = np.where(self._since == _NEVER, _NEVER, np.minimum(self._since, bucket))

    def counts(self, row: int) -> tuple[int | None, ...]:
        """The buckets of ``row``, oldest first, None where missing."""
        if self._newest is None:
            return ()
        numbers = np.arange(self._newest - self.buckets + 1, self._newest + 1)
        places = numbers % self.buckets
        known = ~self._missing[places] & (numbers >= self._since[row])
        values = self._counts[row, places].tolist()
        return tuple(
            value if is_known else None
            for value, is_known in zip(values, known.tolist(), strict=True)
        )

    def matrix(self, rows: Rows, end_s: float, length: int) -> Floats:
        """The ``length`` whole buckets before ``end_s``, oldest first; not a number where missing.

        Returns
        -------
        (n, length) array.
        """
        found = np.full((len(rows), length), np.nan)
        newest, end = self._newest, self._bucket(end_s)
        if newest is None:
            return found
        numbers = np.arange(end - length, end)
        kept = (numbers > newest - self.buckets) & (numbers <= newest)
        places = numbers[kept] % self.buckets
        known = ~self._missing[places] & (numbers[kept] >= self._since[rows][:, None])
        found[:, kept] = np.where(known, self._counts[np.ix_(rows, places)], np.nan)
        return found

    def totals(self, rows: Rows, end_s: float, length_s: float) -> Floats:
        """Arrivals in the ``length_s`` seconds before ``end_s``, both cut to whole buckets.

        Returns
        -------
        (n,) array; not a number for a row of which any of that time is missing or not kept.
        """
        end = self._bucket(end_s)
        start = end - max(1, round(length_s / self.width_s))
        newest = self._newest
        if newest is None or end > newest + 1 or start <= newest - self.buckets:
            return np.full(len(rows), np.nan)
        places = np.arange(start, end) % self.buckets
        if self._missing[places].any():
            return np.full(len(rows), np.nan)
        sums: Floats = self._counts[np.ix_(rows, places)].sum(axis=1, dtype=np.float64)
        sums[self._since[rows] > start] = np.nan
        return sums

    def _bucket(self, at_s: float) -> int:
        return math.floor(at_s / self.width_s)

    def _advance(self, bucket: int, *, watched: bool) -> int:
        newest = self._newest
        if newest is None:
            self._newest = bucket
            self._missing[bucket % self.buckets] = False
            return bucket
        if bucket <= newest:
            return newest
        passed = np.arange(max(newest + 1, bucket - self.buckets + 1), bucket + 1)
        places = passed % self.buckets
        self._counts[:, places] = 0
        self._missing[places] = not watched
        self._missing[bucket % self.buckets] = False
        self._newest = bucket
        return bucket
