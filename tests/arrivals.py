"""Requests as the event log has them, for whatever learns from their times."""

from __future__ import annotations

from contracts.events import PriorityClass, RequestReceived
from contracts.ids import ModelId, RequestId


def received(at_s: float, model: str = "chat", event_id: str | None = None) -> RequestReceived:
    """One that came at this time; two of a model at one time need ids of their own."""
    name = event_id or f"{model}@{at_s}"
    return RequestReceived(
        event_id=name,
        at_s=at_s,
        source="test",
        request_id=RequestId(name),
        model=ModelId(model),
        operation="chat",
        priority=PriorityClass.REALTIME,
        client="c",
        stream=False,
    )
