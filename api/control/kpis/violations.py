"""Requests that went before one of a higher class that had come for the same model. No clock."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from contracts.events import (
    AnyEvent,
    PriorityClass,
    RequestCancelled,
    RequestCompleted,
    RequestDispatched,
    RequestFailed,
    RequestReceived,
)
from contracts.ids import ModelId, RequestId

GRACE_S = 0.25
"""A higher one that came so shortly before may not have been known where the other went."""

_MOST_OPEN = 20_000
_ORDER = tuple(PriorityClass)


@dataclass(frozen=True, slots=True, kw_only=True)
class WentAhead:
    """A request of ``priority`` went although one of a higher class waited for the same model.

    ``is_aged``: it had come before that one, and ageing is meant to be; else it is a violation.
    """

    priority: PriorityClass
    is_aged: bool


class PriorityWatch:
    """Knows who waits. Past ``_MOST_OPEN`` open requests the oldest is no longer watched."""

    def __init__(self) -> None:
        self._waits: dict[ModelId, dict[PriorityClass, OrderedDict[RequestId, float]]] = {}
        self._open: OrderedDict[RequestId, tuple[ModelId, PriorityClass]] = OrderedDict()

    def observe(self, event: AnyEvent) -> WentAhead | None:
        """Take in one event; who went ahead by it, if anybody did."""
        match event:
            case RequestReceived() if event.model is not None:
                self._forget(event.request_id)
                self._open[event.request_id] = (event.model, event.priority)
                classes = self._waits.setdefault(event.model, {})
                classes.setdefault(event.priority, OrderedDict())[event.request_id] = event.at_s
                if len(self._open) > _MOST_OPEN:
                    self._forget(next(iter(self._open)))
            case RequestDispatched():
                return self._dispatched(event)
            case RequestCompleted() | RequestFailed() | RequestCancelled():
                self._forget(event.request_id)
            case _:
                pass
        return None

    def _dispatched(self, event: RequestDispatched) -> WentAhead | None:
        known = self._open.get(event.request_id)
        came_s = self._forget(event.request_id)
        if known is None or came_s is None:
            return None
        model, priority = known
        for higher in _ORDER[: _ORDER.index(priority)]:
            held = self._waits.get(model, {}).get(higher)
            if not held:
                continue
            oldest_s = next(iter(held.values()))
            if oldest_s <= event.at_s - GRACE_S:
                return WentAhead(priority=priority, is_aged=came_s < oldest_s)
        return None

    def _forget(self, request_id: RequestId) -> float | None:
        """When it came, if it waited."""
        known = self._open.pop(request_id, None)
        if known is None:
            return None
        model, priority = known
        classes = self._waits[model]
        came_s = classes[priority].pop(request_id)
        if not classes[priority]:
            del classes[priority]
        if not classes:
            del self._waits[model]
        return came_s
