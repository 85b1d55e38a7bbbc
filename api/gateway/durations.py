"""How long something took, by model: the last of them, of the models that were last used. Pure."""

from __future__ import annotations

import math
from collections import OrderedDict, deque

from contracts.ids import ModelId

MAX_MODELS = 5_000


class Durations:
    """The last ``samples`` durations of each model; the longest untouched model goes first."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._times_s: OrderedDict[ModelId, deque[float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._times_s)

    def note(self, model: ModelId, took_s: float) -> None:
        """It took so long once more."""
        times_s = self._times_s.get(model)
        if times_s is None:
            times_s = self._times_s[model] = deque(maxlen=self._samples)
        times_s.append(max(0.0, took_s))
        self._times_s.move_to_end(model)
        if len(self._times_s) > MAX_MODELS:
            self._times_s.popitem(last=False)

    def longest_s(self, model: ModelId) -> float | None:
        """The longest: the 99th percentile of fewer than a hundred. None: not measured."""
        return max(self._times_s.get(model, ()), default=None)

    def percentile_s(self, model: ModelId, share: float) -> float | None:
        """What ``share`` of them do not exceed; None: not measured."""
        times_s = sorted(self._times_s.get(model, ()))
        return times_s[math.ceil(share * len(times_s)) - 1] if times_s else None
