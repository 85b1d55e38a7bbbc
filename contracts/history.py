"""What came in the past, compact: rings of counts per model, beyond what the event log holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from contracts.ids import ModelId

HISTORY_RINGS: Mapping[float, int] = {10.0: 90, 60.0: 1500, 600.0: 432, 3600.0: 336}
"""Seconds of a bucket, and how many are kept: a quarter of an hour finely, a day by minutes,
three days by ten minutes, two weeks by hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryBucket:
    """What one model was asked for in one stretch of time.

    Attributes
    ----------
    number : int
        The bucket begins at ``number`` times its width, in epoch seconds.
    busy_s : float
        Seconds of service of the requests that ended in it.
    """

    number: int
    arrivals: int
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    busy_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPage:
    """Buckets of one model at one width, oldest first. One that is absent holds nothing."""

    model: ModelId
    width_s: float
    buckets: tuple[HistoryBucket, ...]


class HistoryStore(Protocol):
    """The rings. Bounded: a bucket takes the place of the one a whole ring before it.

    ``token`` fences as in ``contracts.ports.ForecastStore``.
    """

    async def write(
        self, pages: tuple[HistoryPage, ...], *, place: str, token: int | None = None
    ) -> None:
        """Put buckets, each with its whole count, and how far the event log was read for them.

        All of it or nothing is written, so that no event is counted twice or left out.
        """
        ...

    async def read(self, model: ModelId) -> tuple[HistoryPage, ...]:
        """All rings of ``model``, one page for each width that holds anything."""
        ...

    async def models(self) -> tuple[ModelId, ...]:
        """The models that there is history of."""
        ...

    async def place(self) -> str | None:
        """How far the event log is in the rings; None: nothing was ever written."""
        ...

    async def remove(self, models: tuple[ModelId, ...], *, token: int | None = None) -> None:
        """Forget these. With a token also none: from then on smaller ones are refused."""
        ...
