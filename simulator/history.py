"""A past that never happened here: requests of a trace or recipe as events, to warm a predictor."""

from __future__ import annotations

from collections.abc import Iterable

from contracts.events import PriorityClass, RequestCompleted, RequestReceived
from contracts.ids import ModelId, RequestId

SOURCE = "history"


def history_events(
    requests: Iterable[tuple[float, ModelId, float, str]],
) -> tuple[RequestReceived | RequestCompleted, ...]:
    """Events of (time, model, service time, client), in order of time.

    They were never dispatched, so they count neither as cold nor as served by us.
    """
    events: list[RequestReceived | RequestCompleted] = []
    for number, (at_s, model, service_s, client) in enumerate(requests):
        request_id = RequestId(f"{SOURCE}-{number}")
        events.append(
            RequestReceived(
                event_id=f"{request_id}-r",
                at_s=at_s,
                source=SOURCE,
                request_id=request_id,
                model=model,
                operation="chat",
                priority=PriorityClass.REALTIME,
                client=client,
                stream=False,
            )
        )
        events.append(
            RequestCompleted(
                event_id=f"{request_id}-c",
                at_s=at_s + service_s,
                source=SOURCE,
                request_id=request_id,
                model=model,
                status=200,
                duration_s=service_s,
                service_s=service_s,
                input_tokens=None,
                output_tokens=None,
            )
        )
    return tuple(sorted(events, key=lambda event: event.at_s))
