"""Requests in the world: which are open, and what that says of their models. Pure."""

from __future__ import annotations

from dataclasses import replace

from contracts.events import LoadCause, PriorityClass, RequestDispatched, RequestReceived
from contracts.ids import ModelId, RequestId
from contracts.messages import LoadWanted
from contracts.world import ModelStatus, OpenRequest, Residency, WorldSnapshot
from controller.thawed import with_model, with_request, without_request
from controller.wish_list import MODEL_S, RUNG_S, with_wish

__all__ = [
    "MAX_OPEN_REQUESTS",
    "dispatch_request",
    "end_request",
    "fold_wanted",
    "receive_request",
    "with_model",
]

MAX_OPEN_REQUESTS = 20_000
"""Beyond it new requests are not tracked one by one; the drain handshake still protects them."""


def receive_request(world: WorldSnapshot, event: RequestReceived) -> WorldSnapshot:
    """A gateway has received a request; one for no known model changes nothing."""
    if event.model is None or event.model not in world.models:
        return world
    world = _open(world, event.request_id, event.model, event.source, event.at_s, event.priority)
    status = world.models[event.model]
    # What was refused a moment ago and comes again is one demand.
    return with_model(world, replace(status, arrivals=status.arrivals + (not event.is_retry)))


def fold_wanted(world: WorldSnapshot, wanted: LoadWanted) -> WorldSnapshot:
    """A gateway holds a request: known at once, ahead of the event log.

    One that was sent already waits again when its model turned out to be a ghost. A wish from
    before it was sent may come late and says nothing. One for a lower rung leaves the request
    with the model that it is for.
    """
    if wanted.instead_of is not None:
        heard_s = max(world.taken_at_s, wanted.at_s)
        world = with_wish(world, wanted.model, heard_s + RUNG_S)
    request = world.requests.get(wanted.request_id)
    if request is not None:
        sent_s = request.dispatched_at_s
        is_back = sent_s is not None and wanted.at_s > sent_s
        return _taken_back(world, wanted.request_id, wanted.at_s) if is_back else world
    source, asked = str(wanted.gateway), wanted.instead_of or wanted.model
    return _open(world, wanted.request_id, asked, source, wanted.at_s, wanted.priority)


def dispatch_request(world: WorldSnapshot, event: RequestDispatched) -> WorldSnapshot:
    """A request was sent to a node."""
    request = world.requests.get(event.request_id)
    if request is None:
        return world
    if request.dispatched_at_s is not None:
        # Sent on to another node, since the first refused the connection.
        moved = replace(request, node=event.node)
        return with_request(world, event.request_id, moved)
    status = world.models[request.model]
    waiting = status.waiting - 1
    served_by = request.model
    if event.served_by is not None and event.served_by in world.models:
        served_by = event.served_by
    sent = replace(request, model=served_by, dispatched_at_s=event.at_s, node=event.node)
    world = with_request(world, event.request_id, sent)
    waited = replace(
        status, waiting=waiting, wanted_since_s=status.wanted_since_s if waiting else None
    )
    world = with_model(world, waited)
    if served_by != request.model:
        world = _used(world, world.models[served_by], event.at_s)
        world = with_wish(world, request.model, event.at_s + MODEL_S)
    serves = world.models[served_by]
    return with_model(world, replace(serves, in_flight=serves.in_flight + 1))


def end_request(world: WorldSnapshot, request_id: RequestId, at_s: float) -> WorldSnapshot:
    """A request has ended, one way or another; nothing happens if it is not known."""
    request = world.requests.get(request_id)
    if request is None:
        return world
    status = world.models[request.model]
    if request.dispatched_at_s is None:
        waiting = status.waiting - 1
        status = replace(
            status, waiting=waiting, wanted_since_s=status.wanted_since_s if waiting else None
        )
    else:
        status = replace(
            status,
            in_flight=status.in_flight - 1,
            last_used_at_s=max(status.last_used_at_s or at_s, at_s),
        )
        if request.priority is PriorityClass.REALTIME:
            status = replace(status, last_realtime_at_s=_later(status.last_realtime_at_s, at_s))
    return with_model(without_request(world, request_id), status)


def _taken_back(world: WorldSnapshot, request_id: RequestId, at_s: float) -> WorldSnapshot:
    request = world.requests[request_id]
    status = world.models[request.model]
    wanted_s = status.wanted_since_s
    waits = replace(request, dispatched_at_s=None, node=None)
    return with_model(
        with_request(world, request_id, waits),
        replace(
            status,
            in_flight=status.in_flight - 1,
            waiting=status.waiting + 1,
            wanted_since_s=at_s if wanted_s is None else min(wanted_s, at_s),
        ),
    )


def _open(
    world: WorldSnapshot,
    request_id: RequestId,
    model: ModelId,
    source: str,
    at_s: float,
    priority: PriorityClass,
) -> WorldSnapshot:
    known = model in world.models and request_id not in world.requests
    if not known or len(world.requests) >= MAX_OPEN_REQUESTS:
        return world
    status = world.models[model]
    wanted_s = status.wanted_since_s
    request = OpenRequest(model=model, source=source, received_at_s=at_s, priority=priority)
    if priority is PriorityClass.REALTIME:
        status = replace(status, last_realtime_at_s=_later(status.last_realtime_at_s, at_s))
    world = _used(with_request(world, request_id, request), status, at_s)
    return with_model(
        world,
        replace(
            world.models[model],
            waiting=status.waiting + 1,
            wanted_since_s=at_s if wanted_s is None else min(wanted_s, at_s),
        ),
    )


def _used(world: WorldSnapshot, status: ModelStatus, at_s: float) -> WorldSnapshot:
    """Note a use; the first one of a prefetched model makes its prefetch a used one."""
    resident = status.residency not in (Residency.COLD, Residency.FAILED)
    first_use = resident and not status.used_since_load
    if first_use and status.load_cause is LoadCause.PREFETCH:
        world = replace(world, prefetches=replace(world.prefetches, used=world.prefetches.used + 1))
    return with_model(
        world,
        replace(
            status,
            last_used_at_s=_later(status.last_used_at_s, at_s),
            used_since_load=status.used_since_load or resident,
            kept_out=False,
        ),
    )


def _later(last_s: float | None, at_s: float) -> float:
    return at_s if last_s is None else max(last_s, at_s)
