"""What runs just now: requests that have come and not ended, by model."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass

from contracts.ids import ModelId, RequestId

_MOST = 20_000
"""Requests kept; beyond it the oldest is taken for ended, since its end was never told."""


@dataclass(slots=True)
class OpenRequest:
    """One request that runs.

    Attributes
    ----------
    in_flight : int
        Others of its model that ran when it came.
    cold : bool
        It had to wait for its model to be loaded.
    ttft_s : float or None
        None: no content was sent so far.
    """

    model: ModelId
    in_flight: int
    cold: bool = False
    ttft_s: float | None = None


class OpenRequests:
    """Bounded.

    Attributes
    ----------
    overflowed : int
        Requests that were given up because there were too many.
    """

    def __init__(self) -> None:
        self._open: OrderedDict[RequestId, OpenRequest] = OrderedDict()
        self._by_model: Counter[ModelId] = Counter()
        self.overflowed = 0

    def begin(self, request: RequestId, model: ModelId) -> None:
        """It came."""
        if request in self._open:
            return
        self._open[request] = OpenRequest(model, self._by_model[model])
        self._by_model[model] += 1
        if len(self._open) > _MOST:
            self._forget(next(iter(self._open)))
            self.overflowed += 1

    def get(self, request: RequestId) -> OpenRequest | None:
        """None: nobody told of its coming, or it has ended."""
        return self._open.get(request)

    def end(self, request: RequestId) -> OpenRequest | None:
        """It ended; what is known of it."""
        return self._forget(request)

    def in_flight(self, model: ModelId) -> int:
        """Requests of ``model`` that run."""
        return self._by_model.get(model, 0)

    def clear(self) -> None:
        """Nothing is known any more: the clock was set back."""
        self._open.clear()
        self._by_model.clear()

    def _forget(self, request: RequestId) -> OpenRequest | None:
        known = self._open.pop(request, None)
        if known is not None:
            self._by_model[known.model] -= 1
            if self._by_model[known.model] <= 0:
                del self._by_model[known.model]
        return known
