"""A world that many events are folded into in a row, without a copy of all of it for each.

Snapshots share what did not change, so that a changed model costs a new mapping of all models, and
a request a new mapping of all that are open. Over a batch of the log that is done once: between
``thawed`` and ``frozen`` the two mappings belong to the fold alone and are changed in place. Nobody
may keep a snapshot from in between. Outside of a batch nothing is thawed, and nothing changes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from contracts.ids import RequestId
from contracts.world import ModelStatus, OpenRequest, WorldSnapshot

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Thawed(dict[KeyT, ValueT]):
    """A mapping that nobody else holds."""

    __slots__ = ()


def thawed(world: WorldSnapshot) -> WorldSnapshot:
    """The same world, to be folded into; it must be made ``frozen`` before anybody keeps it."""
    return replace(world, models=Thawed(world.models), requests=Thawed(world.requests))


def frozen(world: WorldSnapshot, *, position: str) -> WorldSnapshot:
    """A snapshot like any other again, with the log folded in up to ``position``."""
    return replace(
        world, models=dict(world.models), requests=dict(world.requests), position=position
    )


def with_model(world: WorldSnapshot, status: ModelStatus) -> WorldSnapshot:
    """The world with this status in place of the model's last one."""
    models = world.models
    if isinstance(models, Thawed):
        models[status.model] = status
        return world
    return replace(world, models={**models, status.model: status})


def with_request(
    world: WorldSnapshot, request_id: RequestId, request: OpenRequest
) -> WorldSnapshot:
    """The world with this request open, in place of what was known of it."""
    requests = world.requests
    if isinstance(requests, Thawed):
        requests[request_id] = request
        return world
    return replace(world, requests={**requests, request_id: request})


def without_request(world: WorldSnapshot, request_id: RequestId) -> WorldSnapshot:
    """The world in which this request, which was open, has ended."""
    requests = world.requests
    if isinstance(requests, Thawed):
        del requests[request_id]
        return world
    return replace(
        world, requests={name: open_ for name, open_ in requests.items() if name != request_id}
    )
