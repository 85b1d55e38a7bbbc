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
        self._longest_s: dict[ModelId, float] = {}

    def __len__(self) -> int:
        return len(self._times_s)

    def note(self, model: ModelId, took_s: float) -> None:
        """It took so long once more."""
        times_s = self._times_s.get(model)
        if times_s is None:
            times_s = self._times_s[model] = deque(maxlen=self._samples)
        took_s = max(0.0, took_s)
        gone_s = times_s[0] if len(times_s) == self._samples else -1.0
        times_s.append(took_s)
        longest_s = self._longest_s.get(model, 0.0)
        if took_s >= longest_s:
            self._longest_s[model] = took_s
        elif gone_s >= longest_s:
            self._longest_s[model] = max(times_s)
        self._times_s.move_to_end(model)
        if len(self._times_s) > MAX_MODELS:
            gone, _ = self._times_s.popitem(last=False)
            del self._longest_s[gone]

    def longest_s(self, model: ModelId) -> float | None:
        """The longest: the 99th percentile of fewer than a hundred. None: not measured."""
        return self._longest_s.get(model)

    def percentile_s(self, model: ModelId, share: float) -> float | None:
        """What ``share`` of them do not exceed; None: not measured."""
        times_s = sorted(self._times_s.get(model, ()))
        return times_s[math.ceil(share * len(times_s)) - 1] if times_s else None
