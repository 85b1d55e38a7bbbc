"""The hours before a run as a gateway would have told them: all four events of each request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from contracts.events import (
    AnyEvent,
    FirstTokenSent,
    PriorityClass,
    RequestCompleted,
    RequestDispatched,
    RequestReceived,
)
from contracts.ids import ModelId, NodeId, RequestId

SOURCE = "past"
NODE = NodeId("localai")

Request = tuple[float, ModelId, float]
"""When it came, its model, and how long it took."""


def past_events(requests: Iterable[Request]) -> list[AnyEvent]:
    """The events of requests, in order of time.

    Whole ones, since what is kept of a request takes as much as is known of it: else what is
    kept for a day would grow through the first day though its number stays.
    """
    events = [
        event
        for number, request in enumerate(requests)
        for event in _of(RequestId(f"{SOURCE}-{number}"), *request)
    ]
    return sorted(events, key=lambda event: event.at_s)


def _of(request_id: RequestId, at_s: float, model: ModelId, service_s: float) -> Iterator[AnyEvent]:
    yield RequestReceived(
        event_id=f"{request_id}-r",
        at_s=at_s,
        source=SOURCE,
        request_id=request_id,
        model=model,
        operation="chat",
        priority=PriorityClass.REALTIME,
        client="office",
        stream=True,
    )
    yield RequestDispatched(
        event_id=f"{request_id}-d",
        at_s=at_s,
        source=SOURCE,
        request_id=request_id,
        model=model,
        node=NODE,
        queue_wait_s=0.01,
        cold=False,
    )
    yield FirstTokenSent(
        event_id=f"{request_id}-f",
        at_s=at_s + service_s / 4,
        source=SOURCE,
        request_id=request_id,
        model=model,
        ttft_s=service_s / 4,
    )
    yield RequestCompleted(
        event_id=f"{request_id}-c",
        at_s=at_s + service_s,
        source=SOURCE,
        request_id=request_id,
        model=model,
        status=200,
        duration_s=service_s,
        service_s=service_s,
        input_tokens=100,
        output_tokens=200,
    )
