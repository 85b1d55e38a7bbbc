"""What other gateways before the same LocalAIs do: so that bounds hold for all together. Pure.

Gateways overhear each other's beats, one a second. Of a bound for all (slots of a model, places in
a class's queue) a gateway uses what the others leave, and always its even share, at least one: so
nobody starves behind a busier gateway. What is over the bound is at most what the others began
since their last beat, plus those shares while the others use more than theirs:

    limit here = max(1, floor(bound / gateways), bound - what the others have)

With two gateways, 4 slots and even traffic each holds 2. If one holds 4 when the other begins, the
other takes 2 at once: 6 run until two of the first have ended, and 4 from then on. Without Redis
nobody is heard, and each gateway uses the whole bound.

Rates of keys are told as counts: what others let in is taken out of the bucket here a beat later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from contracts.events import PriorityClass
from contracts.ids import GatewayId, ModelId
from contracts.messages import GatewayBeat

GONE_AFTER_S = 3.0
"""A gateway whose last beat was heard longer ago counts as gone."""

MAX_PEERS = 1_000


@dataclass(frozen=True, slots=True)
class _Heard:
    beat: GatewayBeat
    at_s: float


class Peers:
    """The other gateways that one hears.

    Parameters
    ----------
    own : GatewayId
        Its own beats come back to it, and are passed over.
    gone_after_s : float
        In the seconds of whoever calls; fast clocks need more.
    """

    def __init__(self, own: GatewayId, *, gone_after_s: float = GONE_AFTER_S) -> None:
        self._own = own
        self._gone_after_s = gone_after_s
        self._heard: dict[GatewayId, _Heard] = {}
        self._admitted: Counter[str] = Counter()
        self._in_flight: Counter[ModelId] = Counter()
        self._queued: Counter[PriorityClass] = Counter()

    @property
    def count(self) -> int:
        """How many others there are."""
        return len(self._heard)

    def hear(self, beat: GatewayBeat, now_s: float) -> None:
        """Take a beat. Past ``MAX_PEERS`` a new gateway is not heard."""
        if beat.gateway == self._own:
            return
        known = self._heard.get(beat.gateway)
        if beat.leaving:
            self._heard.pop(beat.gateway, None)
        elif known is not None or len(self._heard) < MAX_PEERS:
            self._heard[beat.gateway] = _Heard(beat, now_s)
        if known is not None:
            # Counts grow from each gateway's start on: only what came since is news.
            for key, count in beat.admitted.items():
                self._admitted[key] += max(0, count - known.beat.admitted.get(key, 0))
        self._add_up()

    def forget_silent(self, now_s: float) -> None:
        """Those who have not beaten for too long are gone."""
        gone = [n for n, heard in self._heard.items() if heard.at_s < now_s - self._gone_after_s]
        for name in gone:
            del self._heard[name]
        if gone:
            self._add_up()

    def slots(self, model: ModelId, bound: int) -> int:
        """How many of a model's slots this gateway may use."""
        return self._share(bound, self._in_flight[model])

    def places(self, priority: PriorityClass, bound: int) -> int:
        """How many places of a class's queue this gateway may use."""
        return self._share(bound, self._queued[priority])

    def take_admitted(self, key: str) -> int:
        """Requests of a key that others let in since this was last asked."""
        return self._admitted.pop(key, 0)

    def keep_keys(self, keys: Mapping[str, object]) -> None:
        """Forget what was told of keys that are gone."""
        self._admitted = Counter({k: n for k, n in self._admitted.items() if k in keys})

    def _share(self, bound: int, others: int) -> int:
        if not self._heard or bound < 1:
            return bound
        return max(1, bound // (1 + len(self._heard)), bound - others)

    def _add_up(self) -> None:
        self._in_flight.clear()
        self._queued.clear()
        for heard in self._heard.values():
            self._in_flight.update(heard.beat.in_flight)
            self._queued.update(heard.beat.queued)
