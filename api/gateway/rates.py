"""How many requests a key may send in a minute. Pure: time comes as an argument.

A bucket of tokens for each key that has a rate: a minute's worth at most, filled steadily. So
one that was quiet may send a burst, and in the long run nobody gets more than the rate. What other
gateways let in is taken out of the bucket here once it is heard of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from contracts.config import CallerKey

_MINUTE_S = 60.0


@dataclass(slots=True)
class _Bucket:
    per_min: float
    tokens: float
    at_s: float


class Rates:
    """The buckets of one gateway; as many as there are keys with a rate.

    Parameters
    ----------
    elsewhere : callable
        Requests of a key that other gateways let in since it was last asked.

    Attributes
    ----------
    admitted : Counter
        Requests that were let in here, by key.
    """

    def __init__(self, elsewhere: Callable[[str], int] = lambda _key: 0) -> None:
        self.admitted: Counter[str] = Counter()
        self._elsewhere = elsewhere
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
        # At most a bucket of debt: who is refused here has not been heard out there for ever.
        bucket.tokens = max(-capacity, bucket.tokens - self._elsewhere(key.name))
        if bucket.tokens >= 1.0:
            bucket.tokens -= 1.0
            self.admitted[key.name] += 1
            return None
        return (1.0 - bucket.tokens) * _MINUTE_S / bucket.per_min

    def keep(self, keys: Iterable[CallerKey]) -> None:
        """Forget keys that are gone. Whoever has used up its rate has so after a reload too."""
        rated = {key.name: key.requests_per_min for key in keys if key.requests_per_min is not None}
        self._buckets = {name: one for name, one in self._buckets.items() if name in rated}
        self.admitted = Counter({name: n for name, n in self.admitted.items() if name in rated})

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
