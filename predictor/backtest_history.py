"""A history of requests as counts per minute, to read outcomes from and to train on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from contracts.errors import Invalid
from contracts.events import AnyEvent, RequestReceived
from contracts.ids import ModelId
from predictor.windows import Floats, Rows

MINUTE_S = 60.0
MAX_MINUTES = 400 * 24 * 60
"""More than a year is a wrong clock, not a history."""
MAX_CELLS = 50_000_000


def demand_of(event: AnyEvent) -> ModelId | None:
    """The model of a request that forecasts are about: not a retry, not our own workers'."""
    if isinstance(event, RequestReceived) and not event.is_retry and not event.is_deferrable:
        return event.model
    return None


def sampled(models: Iterable[ModelId], at_most: int) -> frozenset[ModelId]:
    """``at_most`` of them, the same each time: those whose names have the smallest CRC-32."""
    return frozenset(sorted(models, key=lambda name: (crc32(name.encode()), name))[:at_most])


@dataclass(frozen=True, slots=True)
class History:
    """Counts of each model and minute.

    Attributes
    ----------
    start_s, end_s : float
        Whole minutes around the first and the last request.
    sums : (models, minutes + 1)
        Requests before the start of each minute.
    first : (models,)
        Each model's first minute with a request.
    """

    models: tuple[ModelId, ...]
    start_s: float
    end_s: float
    sums: Floats
    first: Rows

    @classmethod
    def of(cls, events: Sequence[AnyEvent]) -> History:
        """The requests among ``events``.

        Raises
        ------
        Invalid
            There is none, or they span more than can be kept.
        """
        found = [(model, event.at_s) for event in events if (model := demand_of(event)) is not None]
        if not found:
            raise Invalid("there is no request that names a model")
        models = tuple(sorted({model for model, _ in found}))
        row_of = {model: row for row, model in enumerate(models)}
        at_s = np.array([at_s for _, at_s in found])
        rows = np.array([row_of[model] for model, _ in found], dtype=np.intp)
        start_s = MINUTE_S * math.floor(float(at_s.min()) / MINUTE_S)
        minute = ((at_s - start_s) // MINUTE_S).astype(np.intp)
        minutes = int(minute.max()) + 1
        if minutes > MAX_MINUTES or minutes * len(models) > MAX_CELLS:
            raise Invalid(
                f"{len(models)} models over {minutes / 1440:.0f} days are more than can be judged "
                "at once; name fewer models or a shorter time"
            )
        counts = np.zeros((len(models), minutes + 1))
        np.add.at(counts, (rows, minute + 1), 1.0)
        first = np.full(len(models), minutes, dtype=np.intp)
        np.minimum.at(first, rows, minute)
        return cls(
            models=models,
            start_s=start_s,
            end_s=start_s + MINUTE_S * minutes,
            sums=np.cumsum(counts, axis=1),
            first=first,
        )

    def rows(self, models: Sequence[ModelId]) -> Rows:
        """Where ``models`` stand."""
        row_of = {model: row for row, model in enumerate(self.models)}
        return np.array([row_of[model] for model in models], dtype=np.intp)

    def totals(self) -> Floats:
        """Requests of each model in all."""
        return self.sums[:, -1]

    def counts(self, rows: Rows, from_s: float, length_s: float) -> Floats:
        """Requests in the ``length_s`` seconds from ``from_s``, both whole minutes.

        What lies before the start is empty: nothing is known to have come.
        """
        last = self.sums.shape[1] - 1
        left = round((from_s - self.start_s) / MINUTE_S)
        right = left + round(length_s / MINUTE_S)
        counted: Floats = (
            self.sums[rows, min(max(right, 0), last)] - self.sums[rows, min(max(left, 0), last)]
        )
        return counted

    def minutes_until(self, end_s: float, *, length: int | None = None) -> Floats:
        """Counts of each model's minutes up to ``end_s``, (models, minutes), oldest first.

        Not a number before a model's first request and before the start.
        """
        end = round((end_s - self.start_s) / MINUTE_S)
        begin = 0 if length is None else end - length
        known = np.diff(self.sums[:, max(begin, 0) : end + 1], axis=1)
        numbers = np.arange(max(begin, 0), end)
        known = np.where(numbers[None, :] < self.first[:, None], np.nan, known)
        return np.pad(known, ((0, 0), (max(-begin, 0), 0)), constant_values=np.nan)
