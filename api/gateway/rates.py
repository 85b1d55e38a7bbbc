"""How many requests a key may send in a minute. Pure: time comes as an argument.

A bucket of tokens for each key that has a rate: a minute's worth at most, filled steadily. So
one that was quiet may send a burst, and in the long run nobody gets more than the rate. Each
gateway counts for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from contracts.config import CallerKey

_MINUTE_S = 60.0


@dataclass(slots=True)
class _Bucket:
    per_min: float
    tokens: float
    at_s: float


class Rates:
    """The buckets of one gateway; as many as there are keys with a rate."""

    def __init__(self) -> None:
        self._buckets: dict[str, _Bucket] = {}

    def take(self, key: CallerKey | None, now_s: float) -> float | None:
        """Take a token. None: the request may go; else the seconds until there is one.

        ``now_s`` never steps. A refused request takes nothing.
        """
        if key is None or key.requests_per_min is None:
            return None
        bucket = self._bucket(key.name, key.requests_per_min, now_s)
        capacity = _capacity(bucket.per_min)
        spent_s = max(0.0, now_s - bucket.at_s)
        bucket.tokens = min(capacity, bucket.tokens + spent_s * bucket.per_min / _MINUTE_S)
        bucket.at_s = now_s
        if bucket.tokens >= 1.0:
            bucket.tokens -= 1.0
            return None
        return (1.0 - bucket.tokens) * _MINUTE_S / bucket.per_min

    def keep(self, keys: Iterable[CallerKey]) -> None:
        """Forget keys that are gone. Whoever has used up its rate has so after a reload too."""
        rated = {key.name: key.requests_per_min for key in keys if key.requests_per_min is not None}
        self._buckets = {name: one for name, one in self._buckets.items() if name in rated}

    def _bucket(self, name: str, per_min: float, now_s: float) -> _Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = _Bucket(per_min=per_min, tokens=_capacity(per_min), at_s=now_s)
            self._buckets[name] = bucket
        elif bucket.per_min != per_min:
            # The same share of the new bucket is full.
            share = bucket.tokens / _capacity(bucket.per_min)
            bucket.tokens = share * _capacity(per_min)
            bucket.per_min = per_min
        return bucket


def _capacity(per_min: float) -> float:
    """A minute's worth, and never less than the one token that a request takes."""
    return max(1.0, per_min)
