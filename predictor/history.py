"""Counts on their way into the rings, and rings told again as if their requests came."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from contracts.events import AnyEvent, PriorityClass, RequestCompleted, RequestReceived
from contracts.history import HISTORY_RINGS, HistoryBucket, HistoryPage
from contracts.ids import ModelId, RequestId

SOURCE = "history"
_OPEN = 2
"""Buckets of a width that can still be counted in: the newest, and one for stragglers."""
_MOST_TOLD = 200
"""Requests of one bucket that are told again; more of them would teach nothing more."""


@dataclass(slots=True)
class _Tally:
    number: int
    arrivals: int = 0
    input_tokens: float = 0.0
    output_tokens: float = 0.0
    busy_s: float = 0.0
    changed: int = 0
    """Which of all changes was its last."""


@dataclass(slots=True)
class _Open:
    by_width: dict[float, dict[int, _Tally]] = field(
        default_factory=lambda: {width_s: {} for width_s in HISTORY_RINGS}
    )
    newest: dict[float, int] = field(default_factory=dict)
    """The highest number of each width that has any."""


class HistoryBook:
    """Counts of the buckets that are open, for the models that its owner knows.

    Attributes
    ----------
    too_late : int
        What came for buckets that were closed; it is not counted.
    """

    def __init__(self) -> None:
        self._models: dict[ModelId, _Open] = {}
        self._stored = 0
        self.changes = 0
        """Events counted so far: where the book stands, for ``flushed``."""
        self.too_late = 0

    def observe(self, event: AnyEvent, *, known: bool) -> None:
        """Count one event, if it counts; ``known``: its model is one that is forecast."""
        match event:
            case RequestReceived(model=model, is_retry=False, is_deferrable=False) if (
                model is not None and known
            ):
                for tally in self._tallies(model, event.at_s):
                    tally.arrivals += 1
            case RequestCompleted(model=model) if model is not None and model in self._models:
                for tally in self._tallies(model, event.at_s):
                    tally.input_tokens += event.input_tokens or 0
                    tally.output_tokens += event.output_tokens or 0
                    tally.busy_s += event.service_s
            case _:
                pass

    def restore(self, page: HistoryPage) -> None:
        """Go on with what is in a ring: its newest buckets are open again."""
        known = self._models.setdefault(page.model, _Open())
        tallies = known.by_width[page.width_s]
        for bucket in page.buckets[-_OPEN:]:
            tallies[bucket.number] = _Tally(
                bucket.number,
                bucket.arrivals,
                bucket.input_tokens,
                bucket.output_tokens,
                bucket.busy_s,
            )
            known.newest[page.width_s] = bucket.number

    def drop(self, model: ModelId) -> None:
        """Forget ``model``."""
        self._models.pop(model, None)

    def pages(self) -> tuple[HistoryPage, ...]:
        """What has changed since ``flushed``."""
        found = []
        for model, known in self._models.items():
            for width_s, tallies in known.by_width.items():
                fresh = tuple(
                    HistoryBucket(
                        number=tally.number,
                        arrivals=tally.arrivals,
                        input_tokens=tally.input_tokens,
                        output_tokens=tally.output_tokens,
                        busy_s=tally.busy_s,
                    )
                    for tally in tallies.values()
                    if tally.changed > self._stored
                )
                if fresh:
                    found.append(HistoryPage(model=model, width_s=width_s, buckets=fresh))
        return tuple(found)

    def flushed(self, changes: int | None = None) -> None:
        """What ``pages`` gives is stored; closed buckets need not be kept.

        ``changes``: only what was counted while ``changes`` was no more than this is.
        """
        self._stored = max(self._stored, self.changes if changes is None else changes)
        for known in self._models.values():
            for tallies in known.by_width.values():
                for number in sorted(tallies)[:-_OPEN]:
                    if tallies[number].changed <= self._stored:
                        del tallies[number]

    def _tallies(self, model: ModelId, at_s: float) -> Iterator[_Tally]:
        known = self._models.setdefault(model, _Open())
        self.changes += 1
        for width_s, tallies in known.by_width.items():
            number = math.floor(at_s / width_s)
            newest = known.newest.get(width_s, number)
            if number <= newest - _OPEN:
                self.too_late += 1
                continue
            tally = tallies.get(number)
            if tally is None:
                tally = tallies[number] = _Tally(number)
                known.newest[width_s] = max(newest, number)
                if len(tallies) > HISTORY_RINGS[width_s]:
                    # Not stored yet, as while a long log is read: in the ring a newer one lies
                    # in its place.
                    del tallies[min(tallies)]
            tally.changed = self.changes
            yield tally


def retold(
    pages: Mapping[ModelId, Iterable[HistoryPage]], *, before_s: float
) -> tuple[RequestReceived, ...]:
    """The requests of the rings that came before ``before_s``, evenly spread in their buckets.

    Of each time the finest ring tells that still holds it. In order of time.
    """
    told: list[RequestReceived] = []
    for model, rings in pages.items():
        by_width = {page.width_s: page for page in rings}
        limit_s = before_s
        widths = [width_s for width_s in HISTORY_RINGS if width_s in by_width]
        for width_s, coarser_s in zip(widths, [*widths, 1.0][1:], strict=True):
            buckets = by_width[width_s].buckets
            held_from_s = (buckets[-1].number - HISTORY_RINGS[width_s] + 1) * width_s
            # Where the next ring takes over its buckets must not be cut.
            from_s = math.ceil(held_from_s / coarser_s) * coarser_s
            for bucket in buckets:
                if from_s <= bucket.number * width_s and (bucket.number + 1) * width_s <= limit_s:
                    told += _requests(model, width_s, bucket)
            limit_s = min(limit_s, from_s)
    return tuple(sorted(told, key=lambda request: (request.at_s, request.event_id)))


def _requests(model: ModelId, width_s: float, bucket: HistoryBucket) -> Iterator[RequestReceived]:
    count = min(bucket.arrivals, _MOST_TOLD)
    for number in range(count):
        name = f"{SOURCE}:{model}:{width_s:.0f}:{bucket.number}:{number}"
        yield RequestReceived(
            event_id=name,
            at_s=(bucket.number + (number + 0.5) / count) * width_s,
            source=SOURCE,
            request_id=RequestId(name),
            model=model,
            operation="chat",
            priority=PriorityClass.REALTIME,
            client="",
            stream=False,
        )
