"""The event log as a history that can be told to the predictor again."""

from __future__ import annotations

from contracts.events import AnyEvent, FirstTokenSent, RequestCompleted, RequestReceived
from contracts.ids import ModelId
from contracts.ports import EventLog
from contracts.seen_events import SeenEvents
from predictor.backtest_history import sampled

_AT_ONCE = 5000
MAX_REQUESTS = 500_000
"""The newest so many are told: half an hour of work."""
MAX_MODELS = 100
"""More models than this are sampled: those whose names have the smallest CRC-32."""


async def read_requests(events: EventLog, *, since_s: float) -> tuple[RequestReceived, ...]:
    """Requests of the log from ``since_s`` on, in the order of time.

    Only those for models that have ever answered: a name that a client made up is no model.
    Of many models some are taken, always the same.

    Raises
    ------
    Transient
        The log did not answer.
    """
    found: list[RequestReceived] = []
    seen = SeenEvents()
    answered: set[ModelId] = set()
    place = "0"
    while entries := await events.read_after(place, count=_AT_ONCE):
        place = entries[-1].entry_id
        for event in seen.fresh(entry.value for entry in entries):
            model = _answered(event)
            if model is not None:
                answered.add(model)
            elif isinstance(event, RequestReceived) and event.at_s >= since_s:
                found.append(event)
        if len(found) > 2 * MAX_REQUESTS:
            del found[:-MAX_REQUESTS]
    chosen = sampled(answered, MAX_MODELS)
    kept = [event for event in found[-MAX_REQUESTS:] if event.model in chosen]
    return tuple(sorted(kept, key=lambda event: event.at_s))


def _answered(event: AnyEvent) -> ModelId | None:
    """The model, if the event tells that it has answered."""
    if isinstance(event, FirstTokenSent):
        return event.model
    if isinstance(event, RequestCompleted) and event.status < 400:
        return event.model
    return None
