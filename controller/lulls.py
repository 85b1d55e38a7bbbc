"""What people leave for background work: how many requests, and which loads. Pure."""

from __future__ import annotations

from contracts.config import PlannerConfig
from contracts.events import LoadCause, PriorityClass
from contracts.forecasts import Forecasts
from contracts.ids import ModelId, NodeId
from contracts.limits import ClassLimits
from contracts.reasons import Reason
from contracts.world import ModelStatus, NodeStatus, Residency, Strain, WorldSnapshot
from controller.eviction import idle_models
from controller.memory import Room, room

VALID_S = 10.0
"""Limits are published every second; a controller that dies leaves none behind for long."""

LULL_S = 300.0
"""A model that is not wanted for so long is worth more to a batch than to its next user: it
would be loaded again once in five minutes at most."""

LULL_PROBABILITY = 0.1

PEOPLE_S = 30.0
"""For so long after the last realtime request of any model people count as being there."""

_BUSY = frozenset({Reason.GPU_BUSY, Reason.CPU_BUSY})
_ABSENT = frozenset({Residency.COLD, Residency.FAILED})


def background_limits(
    world: WorldSnapshot, forecasts: Forecasts, config: PlannerConfig, *, slots: int
) -> tuple[ClassLimits, ...]:
    """What batches and background jobs may take now, each class as much.

    Each realtime request that runs takes one of the ``slots``; one is always left, since theirs
    give way to whoever waits. A cold model may be loaded where it fits beside all
    that are resident, or in the place of such as will hardly be used within ``LULL_S``.

    Nothing is loaded for them on a machine that is strained, and while people are there a busy
    one counts for none of the slots.
    """
    alive = [node for node in world.nodes.values() if node.alive]
    busy = [strain for node in alive if (strain := _busy_with(node)) is not None]
    if busy and _is_used_by_people(world):
        slots = slots * (len(alive) - len(busy)) // len(alive)
    running = sum(
        request.dispatched_at_s is not None and request.priority is PriorityClass.REALTIME
        for request in world.requests.values()
    )
    loadable = tuple(
        model
        for node in sorted(world.nodes)
        if world.nodes[node].alive and not world.nodes[node].strains
        for model in _loadable(world, forecasts, config, node)
    )
    return tuple(
        ClassLimits(
            priority=priority,
            slots=max(1, slots - running),
            loadable=loadable,
            valid_until_s=world.taken_at_s + VALID_S,
            reason=busy[0].reason if busy else Reason.DEMAND,
        )
        for priority in (PriorityClass.BATCH, PriorityClass.BACKGROUND)
    )


def _busy_with(node: NodeStatus) -> Strain | None:
    return next((strain for strain in node.strains if strain.reason in _BUSY), None)


def _is_used_by_people(world: WorldSnapshot) -> bool:
    """Whether there is anybody whom batches could slow down."""
    if any(request.priority is PriorityClass.REALTIME for request in world.requests.values()):
        return True
    return any(
        model.last_realtime_at_s is not None
        and world.taken_at_s - model.last_realtime_at_s < PEOPLE_S
        for model in world.models.values()
    )


def _loadable(
    world: WorldSnapshot, forecasts: Forecasts, config: PlannerConfig, node: NodeId
) -> list[ModelId]:
    models = world.on_node(node)
    here = room(world, node, config)
    quiet = [
        status
        for status in idle_models(world, models)
        if _is_quiet(status, forecasts, world.taken_at_s)
    ]
    quiet_bytes = sum(status.occupied_bytes for status in quiet)
    return [
        status.model
        for status in models
        if status.residency in _ABSENT and _fits(status, here, quiet_bytes, len(quiet))
    ]


def _fits(status: ModelStatus, here: Room, quiet_bytes: int, quiet_models: int) -> bool:
    return (
        not here.can_never_hold(status)
        and here.missing_bytes(here.main_need(status)) <= quiet_bytes
        and here.missing_slots() <= quiet_models
    )


def _is_quiet(status: ModelStatus, forecasts: Forecasts, now_s: float) -> bool:
    """Whether people will hardly miss it; without a forecast, whether it has rested for long.

    What batches themselves ask for is no demand, else they would wait for each other's models.
    """
    last_s = status.last_realtime_at_s
    if last_s is None and status.load_cause is LoadCause.DEMAND:
        return True
    idle_s = now_s - (status.residency_since_s if last_s is None else last_s)
    forecast = forecasts.get(status.model)
    curve = None if forecast is None else forecast.next_use
    if curve is None or not curve.is_valid(now_s):
        return idle_s >= LULL_S
    return curve.probability_between(now_s, 0.0, LULL_S) < LULL_PROBABILITY
