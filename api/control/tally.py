"""Running figures over the event log: requests, cold ones, and targets met. No clock, no I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from contracts.events import (
    AnyEvent,
    FirstTokenSent,
    Origin,
    RequestCancelled,
    RequestCompleted,
    RequestDispatched,
    RequestFailed,
    RequestReceived,
)
from contracts.ids import ModelId, RequestId

WINDOW_S = 3600.0
"""Targets are judged over the last hour."""

_BUCKET_S = 60.0
_BUCKETS = int(WINDOW_S / _BUCKET_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attainment:
    """How many of the judged requests met their model's latency target."""

    met: int = 0
    judged: int = 0

    @property
    def ratio(self) -> float | None:
        """None while nothing was judged."""
        return self.met / self.judged if self.judged else None


class RequestTally:
    """Counts requests as their events come in.

    A stream is judged by the time to its first byte of content, any other request by its
    whole duration. A request that failed through no fault of its caller missed its target;
    one whose caller was wrong or left is not judged.

    Parameters
    ----------
    target_s : callable
        The latency target of a model, in seconds, as it is when a request is judged.
    max_open, max_models : int
        Requests under way and models that are kept; beyond them the oldest is forgotten and
        counted in ``forgotten``.
    """

    def __init__(
        self,
        target_s: Callable[[ModelId], float],
        *,
        max_open: int = 20_000,
        max_models: int = 1000,
    ) -> None:
        self._target_s = target_s
        self._max_open = max_open
        self._max_models = max_models
        self._open: OrderedDict[RequestId, _Open] = OrderedDict()
        self._windows: OrderedDict[ModelId, _Window] = OrderedDict()
        self.since_s: float | None = None
        self.received = 0
        self.dispatched = 0
        self.cold = 0
        self.completed = 0
        self.failed = 0
        self.cancelled = 0
        self.forgotten = 0

    def observe(self, event: AnyEvent) -> None:
        """Count one event; those that are not about requests change nothing."""
        if self.since_s is None:
            self.since_s = event.at_s
        match event:
            case RequestReceived():
                self.received += 1
                self._begin(event)
            case RequestDispatched():
                self.dispatched += 1
                self.cold += event.cold
                if (request := self._open.get(event.request_id)) is not None:
                    request.dispatched = True
            case FirstTokenSent():
                self._first_token(event)
            case RequestCompleted() | RequestFailed() | RequestCancelled():
                self._end(event)
            case _:
                pass

    def attainment(self, now_s: float, model: ModelId | None = None) -> Attainment:
        """Of one model, or of all, over the last ``WINDOW_S``."""
        bucket = int(now_s // _BUCKET_S)
        if model is not None:
            window = self._windows.get(model)
            return window.over(bucket) if window is not None else Attainment()
        each = [window.over(bucket) for window in self._windows.values()]
        return Attainment(met=sum(one.met for one in each), judged=sum(one.judged for one in each))

    def _begin(self, event: RequestReceived) -> None:
        if event.model is None:
            return
        self._open[event.request_id] = _Open(stream=event.stream)
        if len(self._open) > self._max_open:
            self._open.popitem(last=False)
            self.forgotten += 1

    def _first_token(self, event: FirstTokenSent) -> None:
        request = self._open.get(event.request_id)
        if request is None or event.model is None or not request.stream or request.judged:
            return
        request.judged = True
        self._judge(event.model, event.at_s, met=event.ttft_s <= self._target_s(event.model))

    def _end(self, event: RequestCompleted | RequestFailed | RequestCancelled) -> None:
        request = self._open.pop(event.request_id, None)
        judgeable = request is not None and not request.judged
        match event:
            case RequestCompleted():
                self.completed += 1
                # A refusal that LocalAI relayed says nothing about how fast we were, and what
                # was never dispatched is a history that somebody else served.
                served = request is not None and request.dispatched and event.status < 400
                if judgeable and served and event.model is not None:
                    met = event.duration_s <= self._target_s(event.model)
                    self._judge(event.model, event.at_s, met=met)
            case RequestFailed():
                self.failed += 1
                if judgeable and event.model is not None and event.origin is not Origin.CLIENT:
                    self._judge(event.model, event.at_s, met=False)
            case RequestCancelled():
                self.cancelled += 1
            case _:
                assert_never(event)

    def _judge(self, model: ModelId, at_s: float, *, met: bool) -> None:
        window = self._windows.get(model)
        if window is None:
            window = self._windows[model] = _Window()
            if len(self._windows) > self._max_models:
                self._windows.popitem(last=False)
                self.forgotten += 1
        else:
            self._windows.move_to_end(model)
        window.add(int(at_s // _BUCKET_S), met=met)


@dataclass(slots=True)
class _Open:
    stream: bool
    dispatched: bool = False
    judged: bool = False


class _Window:
    """Met and judged by minute, in a ring of one hour."""

    __slots__ = ("_judged", "_met", "_minute")

    def __init__(self) -> None:
        self._minute = [-1] * _BUCKETS
        self._met = [0] * _BUCKETS
        self._judged = [0] * _BUCKETS

    def add(self, bucket: int, *, met: bool) -> None:
        index = bucket % _BUCKETS
        if self._minute[index] > bucket:
            return
        if self._minute[index] != bucket:
            self._minute[index] = bucket
            self._met[index] = self._judged[index] = 0
        self._judged[index] += 1
        self._met[index] += met

    def over(self, now_bucket: int) -> Attainment:
        valid = [
            index
            for index, bucket in enumerate(self._minute)
            if now_bucket - _BUCKETS < bucket <= now_bucket
        ]
        return Attainment(
            met=sum(self._met[index] for index in valid),
            judged=sum(self._judged[index] for index in valid),
        )
