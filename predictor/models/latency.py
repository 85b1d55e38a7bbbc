"""How long requests take: by what else runs and how much they ask, and by what was seen lately.

Two forecasters run beside each other for each signal of each model. The floor is the recent
values alone. The other is a River regression of the logarithm on the load, with a band of the
quantiles of its last errors (conformal): prompts differ a hundredfold, and a full server is
slower than an idle one. Each value is scored for both before either learns of it, and the
better one is what is said.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from river import linear_model, optim, preprocessing

from contracts.forecasts import QUANTILE_LEVELS, Signal

RECENT = "recent_quantiles"
REGRESSION = "river_log_linear"

BY_LOAD: tuple[Signal, ...] = (Signal.TTFT_S, Signal.DURATION_S, Signal.TOKENS_PER_S)
"""What depends on the load; the time of a load itself does not."""
READY_VALUES = 5
"""Below this many the quantiles are mere guesses."""
_SCORED_VALUES = 20.0
_KEPT = 64
"""Values kept for the floor: enough for the 0.9 quantile, few enough to forget a change."""
_ERRORS = 128
_IMAGINED_SPREAD = 0.5
"""Before errors are known, one in three values lies further off than by a factor of 1.6."""
_IMAGINED_ERRORS: tuple[float, ...] = tuple(
    _IMAGINED_SPREAD * deviation for deviation in (-1.2816, 0.0, 1.2816, 2.3263)
)
_IMAGINED_ERRORS_COUNT = 2.0
_MEMORY = 200.0
_LOSES_BY, _KEEPS_UP_BY = 1.05, 1.02
_LEAST_S = 1e-4
_BEYOND = math.log(2.0)
"""No forecast leaves what was seen by more than this factor."""
_LEARNING_RATE = 0.05
_FEATURE_LIMIT = 3.0
_TOP = QUANTILE_LEVELS.index(0.9)
# Of each count that there can be, worked out once: requests come by the thousand a second.
_VALUE_RANKS: tuple[tuple[int, ...], ...] = tuple(
    tuple(min(count - 1, math.floor(level * count)) for level in QUANTILE_LEVELS)
    for count in range(_KEPT + 1)
)
_ERROR_RANKS: tuple[tuple[int, ...], ...] = tuple(
    tuple(min(math.ceil(level * (count + 1.0)), count) - 1 for level in QUANTILE_LEVELS)
    for count in range(_ERRORS + 1)
)
_SIDES: tuple[tuple[float, float], ...] = tuple((level, level - 1.0) for level in QUANTILE_LEVELS)
"""What a value costs for each unit that it lies over a quantile, and under it."""

_SCALER: Any = preprocessing.StandardScaler
_REGRESSION: Any = linear_model.LinearRegression
_SGD: Any = optim.SGD


@dataclass(frozen=True, slots=True)
class RequestLoad:
    """What a request meets, and brings.

    Attributes
    ----------
    in_flight : int
        Requests of its model that were open when it came.
    input_tokens : float or None
        None: nobody counted.
    """

    in_flight: int
    input_tokens: float | None
    features: Mapping[str, float] = field(init=False, compare=False, repr=False)
    """What a regression sees; plain and logarithmic, since both laws occur."""

    def __post_init__(self) -> None:
        tokens = self.input_tokens or 0.0
        features = {
            "in_flight": float(self.in_flight),
            "log_in_flight": math.log1p(self.in_flight),
            "tokens": tokens / 1000.0,
            "log_tokens": math.log1p(tokens),
        }
        object.__setattr__(self, "features", features)


@dataclass(frozen=True, slots=True)
class LatencyForecast:
    """Quantiles of one signal, whose they are, and how both have done (decayed)."""

    mean: float
    quantiles: tuple[float, ...]
    method: str
    ready: bool
    degraded: bool
    loss: float | None
    floor_loss: float | None
    coverage: float | None
    band_coverage: float | None


class RecentValues:
    """The last values of one signal: the floor."""

    __slots__ = ("_ordered", "_values")

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=_KEPT)
        self._ordered: list[float] = []

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: float) -> None:
        """Take in one value, finite and at least 0."""
        if len(self._values) == _KEPT:
            del self._ordered[bisect_left(self._ordered, self._values[0])]
        self._values.append(value)
        insort(self._ordered, value)

    @property
    def mean(self) -> float:
        """Their mean; there must be one."""
        return math.fsum(self._values) / len(self._values)

    def quantiles(self) -> tuple[float, ...]:
        """Their values at ``QUANTILE_LEVELS``, never decreasing; there must be one."""
        ordered = self._ordered
        return tuple([ordered[rank] for rank in _VALUE_RANKS[len(ordered)]])


class LoadRegression:
    """The logarithm of one signal by load, with the quantiles of its last errors.

    Attributes
    ----------
    resets : int
        How often it was started afresh because something was not finite.
    """

    __slots__ = ("_centre", "_errors", "_highest", "_lowest", "_model", "_ordered", "_scaler",
                 "resets")  # fmt: skip

    def __init__(self) -> None:
        self.resets = 0
        self._start()

    def _start(self) -> None:
        self._scaler: Any = _SCALER()
        self._model: Any = _REGRESSION(
            optimizer=_SGD(_LEARNING_RATE), intercept_lr=_LEARNING_RATE, intercept_init=0.0
        )
        self._centre: float | None = None
        self._errors: deque[float] = deque(maxlen=_ERRORS)
        self._ordered: list[float] = []
        self._lowest, self._highest = math.inf, -math.inf

    def expected(self, load: RequestLoad) -> float | None:
        """The logarithm that is most likely; None before the first value."""
        if self._centre is None:
            return None
        found: float = self._centre + self._model.predict_one(self._scaled(load))
        if not math.isfinite(found):
            self.resets += 1
            self._start()
            return None
        return min(max(found, self._lowest - _BEYOND), self._highest + _BEYOND)

    def quantiles(self, expected: float) -> tuple[float, ...]:
        """Values at ``QUANTILE_LEVELS``, finite, positive, never decreasing."""
        ordered = self._ordered
        count = len(ordered)
        trust = count / (count + _IMAGINED_ERRORS_COUNT)
        doubt = 1.0 - trust
        highest = self._highest + _BEYOND if count else math.inf
        found, least = [], 0.0
        for rank, imagined in zip(_ERROR_RANKS[count], _IMAGINED_ERRORS, strict=True):
            error = ordered[rank] if count else 0.0
            found_log = expected + trust * error + doubt * imagined
            value = math.exp(min(found_log, highest))
            if value > least:
                least = value
            found.append(least)
        return tuple(found)

    def learn(self, load: RequestLoad, expected: float | None, value: float) -> None:
        """``value`` came under ``load`` where ``expected`` had been said."""
        target = math.log(max(value, _LEAST_S))
        self._lowest, self._highest = min(self._lowest, target), max(self._highest, target)
        if self._centre is None:
            self._centre = target
        self._scaler.learn_one(load.features)
        self._model.learn_one(self._scaled(load), target - self._centre)
        if expected is None:
            return
        if len(self._errors) == _ERRORS:
            del self._ordered[bisect_left(self._ordered, self._errors[0])]
        self._errors.append(target - expected)
        insort(self._ordered, target - expected)

    def _scaled(self, load: RequestLoad) -> dict[str, float]:
        scaled: Mapping[str, float] = self._scaler.transform_one(load.features)
        limit = _FEATURE_LIMIT
        return {
            name: 0.5 * (-limit if value < -limit else min(value, limit))
            for name, value in scaled.items()
        }


class SignalLatency:
    """One signal of one model: floor and regression side by side."""

    __slots__ = ("_covered", "_degraded", "_floor_loss", "_inside", "_loss", "_recent",
                 "_regression", "_weight")  # fmt: skip

    def __init__(self) -> None:
        self._recent = RecentValues()
        self._regression = LoadRegression()
        self._loss = self._floor_loss = self._covered = self._inside = self._weight = 0.0
        self._degraded = False

    @property
    def resets(self) -> int:
        """How often the regression had to be started afresh."""
        return self._regression.resets

    def add(self, load: RequestLoad | None, value: float) -> None:
        """Score what would have been said, then learn; None: nothing is known of the load.

        What is not finite or below 0 is left out.
        """
        if not math.isfinite(value) or value < 0.0:
            return
        expected = None if load is None else self._regression.expected(load)
        if expected is not None and len(self._recent) >= READY_VALUES:
            self._score(self._regression.quantiles(expected), value)
        if load is not None:
            self._regression.learn(load, expected, value)
        self._recent.add(value)

    def forecast(self, load: RequestLoad) -> LatencyForecast | None:
        """What is expected under ``load``; None before the first value."""
        if not len(self._recent):
            return None
        expected = self._regression.expected(load)
        judged = self._weight >= _SCORED_VALUES
        by_load = expected is not None and judged and not self._degraded
        if by_load and expected is not None:
            quantiles = self._regression.quantiles(expected)
            mean = quantiles[QUANTILE_LEVELS.index(0.5)]
        else:
            quantiles, mean = self._recent.quantiles(), self._recent.mean
        return LatencyForecast(
            mean=mean,
            quantiles=quantiles,
            method=REGRESSION if by_load else RECENT,
            ready=len(self._recent) >= READY_VALUES,
            degraded=self._degraded,
            loss=self._mean(self._loss),
            floor_loss=self._mean(self._floor_loss),
            coverage=self._mean(self._covered),
            band_coverage=self._mean(self._inside),
        )

    def _score(self, quantiles: tuple[float, ...], value: float) -> None:
        fade = 1.0 - 1.0 / _MEMORY
        self._weight = fade * self._weight + 1.0
        self._loss = fade * self._loss + pinball(quantiles, value)
        self._floor_loss = fade * self._floor_loss + pinball(self._recent.quantiles(), value)
        self._covered = fade * self._covered + (value <= quantiles[_TOP])
        self._inside = fade * self._inside + (quantiles[0] <= value <= quantiles[_TOP])
        bound = _KEEPS_UP_BY if self._degraded else _LOSES_BY
        self._degraded = self._weight >= _SCORED_VALUES and self._loss > bound * self._floor_loss

    def _mean(self, total: float) -> float | None:
        return total / self._weight if self._weight else None


class ModelLatency:
    """All signals of one model."""

    __slots__ = ("_answers", "_services", "_signals", "_tokens")

    def __init__(self) -> None:
        self._signals: dict[Signal, SignalLatency] = {}
        self._tokens, self._answers, self._services = (RecentValues() for _ in range(3))

    @property
    def resets(self) -> int:
        """How often a regression had to be started afresh."""
        return sum(signal.resets for signal in self._signals.values())

    def add(self, signal: Signal, load: RequestLoad | None, value: float) -> None:
        """Take in one value."""
        known = self._signals.get(signal)
        if known is None:
            known = self._signals[signal] = SignalLatency()
        known.add(load, value)

    def add_request(
        self, *, input_tokens: int | None, output_tokens: int | None, service_s: float
    ) -> None:
        """What one request brought and took; None: nobody counted."""
        if input_tokens is not None:
            self._tokens.add(float(input_tokens))
        if output_tokens is not None:
            self._answers.add(float(output_tokens))
        if math.isfinite(service_s) and service_s >= 0.0:
            self._services.add(service_s)

    def per_request(self) -> Mapping[Signal, float]:
        """Means of the recent requests, of what is known: tokens, and seconds of service."""
        values = {
            Signal.INPUT_TOKENS: self._tokens,
            Signal.OUTPUT_TOKENS: self._answers,
            Signal.CONCURRENCY: self._services,
        }
        return {signal: recent.mean for signal, recent in values.items() if len(recent)}

    def usual_load(self, in_flight: int) -> RequestLoad:
        """What the next request is likely to meet and bring."""
        tokens = self._tokens.quantiles()[1] if len(self._tokens) else None
        return RequestLoad(in_flight, tokens)

    def forecast(self, signal: Signal, load: RequestLoad) -> LatencyForecast | None:
        """What is expected of ``signal`` under ``load``; None before the first value."""
        known = self._signals.get(signal)
        return None if known is None else known.forecast(load)

    def cold_wait_s(self, load: RequestLoad) -> float | None:
        """Expected wait for the first content if the model had to be loaded; None: unknown."""
        loading = self.forecast(Signal.LOAD_S, load)
        if loading is None:
            return None
        first = self.forecast(Signal.TTFT_S, load)
        return loading.mean + (0.0 if first is None else first.mean)


def pinball(quantiles: tuple[float, ...], value: float) -> float:
    """Mean pinball loss over ``QUANTILE_LEVELS``."""
    total = 0.0
    for (above, below), quantile in zip(_SIDES, quantiles, strict=True):
        over = value - quantile
        total += above * over if over > 0.0 else below * over
    return total / len(QUANTILE_LEVELS)
