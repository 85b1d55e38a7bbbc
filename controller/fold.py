"""Events into the world: the pure reducer that controller and simulator share.

``fold`` takes one event, the other functions what processes say between events. Each returns
a new snapshot. Events may be late or doubled; none may make the world impossible.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from contracts.events import (
    ActionApplied,
    ActionFailed,
    AnyEvent,
    FirstTokenSent,
    IntentSignal,
    LoadCause,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadStarted,
    ModelUnloaded,
    NodeLost,
    NodeObserved,
    RequestCancelled,
    RequestCompleted,
    RequestDispatched,
    RequestEnd,
    RequestFailed,
    RequestReceived,
)
from contracts.ids import ModelId, NodeId, RequestId
from contracts.messages import LoadWanted
from contracts.plan import LoadModel, Plan, UnloadModel
from contracts.world import (
    ModelStatus,
    NodeStatus,
    OpenRequest,
    Residency,
    WorldSnapshot,
)
from controller.lifecycle import Step, applies, follow

LOAD_KIND = "load"
UNLOAD_KIND = "unload"

FIRST_COOLDOWN_S = 10.0
"""LocalAI's own first cool-down, used where a failed load did not tell one."""

MAX_FAILURE_CHARS = 300

MIN_COOLDOWN_S = 1.0
"""LocalAI rounds the rest of a cool-down to whole seconds, also to none."""

LOAD_S_SHARE = 0.3
"""Share of a new measurement in the load time: follows a change within three or four loads."""

SPARE_S = 5.0
"""After an unload that was given up: who uses the model may be unknown here (a websocket, a
caller that goes past the gateway), so that it would be chosen again at once, and for ever."""

FOREIGN_LOAD_LIMIT_S = 600.0
"""A load that a gateway began counts as ended when no poll has shown its model for so long."""

MAX_OPEN_REQUESTS = 20_000
"""Beyond it new requests are not tracked one by one; the drain handshake still protects them."""


def fold(world: WorldSnapshot, event: AnyEvent) -> WorldSnapshot:  # noqa: C901 - a line per event
    """The world after ``event``."""
    match event:
        case RequestReceived():
            after = _received(world, event)
        case RequestDispatched():
            after = _dispatched(world, event)
        case RequestCompleted() | RequestFailed() | RequestCancelled():
            after = _ended(world, event)
        case ModelLoadStarted():
            after = _load_started(world, event.model, event.cause, event.at_s)
        case ModelLoaded():
            after = _loaded(world, event)
        case ModelLoadFailed():
            after = _load_failed(world, event)
        case ModelUnloaded():
            after = _step(world, event.model, Step.UNLOADED, event.at_s)
        case NodeObserved():
            after = _observed(world, event)
        case NodeLost():
            after = _with_node(world, replace(_node(world, event.node), alive=False))
        case ActionFailed():
            after = _action_failed(world, event)
        case FirstTokenSent() | IntentSignal() | ActionApplied():
            after = world
        case _:
            assert_never(event)
    return replace(
        after, taken_at_s=max(world.taken_at_s, event.at_s), generation=world.generation + 1
    )


def commit(world: WorldSnapshot, plan: Plan) -> WorldSnapshot:
    """The world once ``plan`` is ordered: victims drain, loads count against the budget."""
    for action in plan.actions:
        match action:
            case UnloadModel():
                world = _step(world, action.model, Step.DRAIN, plan.made_at_s)
            case LoadModel():
                world = _load_started(world, action.model, action.cause, plan.made_at_s)
            case _:
                pass
    return replace(world, generation=world.generation + 1)


def fold_wanted(world: WorldSnapshot, wanted: LoadWanted) -> WorldSnapshot:
    """A gateway holds a request: known at once, ahead of the event log."""
    return _open(world, wanted.request_id, wanted.model, str(wanted.gateway), wanted.at_s)


def end_request(world: WorldSnapshot, request_id: RequestId, at_s: float) -> WorldSnapshot:
    """A request has ended, one way or another; nothing happens if it is not known."""
    request = world.requests.get(request_id)
    if request is None:
        return world
    requests = {name: open_ for name, open_ in world.requests.items() if name != request_id}
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
    return _with_model(replace(world, requests=requests), status)


def _received(world: WorldSnapshot, event: RequestReceived) -> WorldSnapshot:
    if event.model is None or event.model not in world.models:
        return world
    world = _open(world, event.request_id, event.model, event.source, event.at_s)
    status = world.models[event.model]
    return _with_model(world, replace(status, arrivals=status.arrivals + 1))


def _open(
    world: WorldSnapshot, request_id: RequestId, model: ModelId, source: str, at_s: float
) -> WorldSnapshot:
    known = model in world.models and request_id not in world.requests
    if not known or len(world.requests) >= MAX_OPEN_REQUESTS:
        return world
    status = world.models[model]
    wanted_s = status.wanted_since_s
    request = OpenRequest(model=model, source=source, received_at_s=at_s)
    world = _used(replace(world, requests={**world.requests, request_id: request}), status, at_s)
    return _with_model(
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
    last_s = status.last_used_at_s
    return _with_model(
        world,
        replace(
            status,
            last_used_at_s=at_s if last_s is None else max(last_s, at_s),
            used_since_load=status.used_since_load or resident,
            kept_out=False,
        ),
    )


def _dispatched(world: WorldSnapshot, event: RequestDispatched) -> WorldSnapshot:
    request = world.requests.get(event.request_id)
    if request is None or request.dispatched_at_s is not None:
        return world
    status = world.models[request.model]
    waiting = status.waiting - 1
    world = replace(
        world,
        requests={**world.requests, event.request_id: replace(request, dispatched_at_s=event.at_s)},
    )
    return _with_model(
        world,
        replace(
            status,
            waiting=waiting,
            in_flight=status.in_flight + 1,
            wanted_since_s=status.wanted_since_s if waiting else None,
        ),
    )


def _ended(world: WorldSnapshot, event: RequestEnd) -> WorldSnapshot:
    return end_request(world, event.request_id, event.at_s)


def _load_started(
    world: WorldSnapshot, model: ModelId, cause: LoadCause, at_s: float
) -> WorldSnapshot:
    status = world.models.get(model)
    if status is None:
        return world
    if status.residency is Residency.LOADING:
        # Ordered before, begun now: its time counts from here.
        return _with_model(world, replace(status, residency_since_s=at_s))
    if not applies(status.residency, Step.LOAD):
        return world
    tally = world.prefetches
    if cause is LoadCause.PREFETCH:
        tally = replace(tally, started=tally.started + 1, used=tally.used + bool(status.waiting))
    world = replace(
        world,
        prefetches=tally,
        demand_loads=world.demand_loads + (cause in (LoadCause.DEMAND, LoadCause.GATEWAY)),
    )
    return _with_model(
        _granted(world, model),
        replace(
            status,
            residency=Residency.LOADING,
            residency_since_s=at_s,
            load_cause=cause,
            used_since_load=status.waiting > 0,
            cooldown_until_s=None,
        ),
    )


def _loaded(world: WorldSnapshot, event: ModelLoaded) -> WorldSnapshot:
    status = world.models.get(event.model)
    if status is None or not applies(status.residency, Step.LOADED):
        return world
    load_s = status.load_s
    if event.load_s is not None:
        # The first measurement stands alone; later ones move it.
        load_s = event.load_s if load_s is None else load_s + LOAD_S_SHARE * (event.load_s - load_s)
    return _with_model(
        _granted(world, event.model),
        replace(
            status,
            residency=Residency.HOT,
            residency_since_s=event.at_s,
            load_s=load_s,
            load_cause=status.load_cause or event.cause,
            last_used_at_s=max(status.last_used_at_s or event.at_s, event.at_s),
            footprint_bytes=event.footprint_bytes or status.footprint_bytes,
            cooldown_until_s=None,
            failure="",
            kept_out=False,
        ),
    )


def _load_failed(world: WorldSnapshot, event: ModelLoadFailed) -> WorldSnapshot:
    status = world.models.get(event.model)
    if status is None or not applies(status.residency, Step.LOAD_FAILED):
        return world
    told_s = event.retry_after_s
    wait_s = FIRST_COOLDOWN_S if told_s is None else max(MIN_COOLDOWN_S, told_s)
    failed = replace(
        status,
        residency=Residency.FAILED,
        residency_since_s=event.at_s,
        cooldown_until_s=event.at_s + wait_s,
        failure=event.error[:MAX_FAILURE_CHARS],
    )
    return _with_model(_granted(world, event.model), failed)


def _granted(world: WorldSnapshot, model: ModelId) -> WorldSnapshot:
    """Nobody has to ask for ``model`` any more: its load was begun, or it is resident."""
    return replace(
        world,
        operator_loads=world.operator_loads - {model},
        preloads=world.preloads - {model},
    )


def _action_failed(world: WorldSnapshot, event: ActionFailed) -> WorldSnapshot:
    steps = {LOAD_KIND: Step.LOAD_GIVEN_UP, UNLOAD_KIND: Step.DRAIN_GIVEN_UP}
    step, name = steps.get(event.kind), ModelId(event.subject)
    if step is None:
        return world
    world = _step(world, name, step, event.at_s)
    if step is not Step.DRAIN_GIVEN_UP or name not in world.models:
        return world
    spared = replace(world.models[name], spared_until_s=event.at_s + SPARE_S)
    return _with_model(world, spared)


def _step(world: WorldSnapshot, model: ModelId, step: Step, at_s: float) -> WorldSnapshot:
    """Follow the table; leaving memory settles whether a prefetch was wasted."""
    status = world.models.get(model)
    if status is None:
        return world
    after = follow(status.residency, step)
    if after is status.residency:
        return world
    gone = after is Residency.COLD
    by_operator = gone and model in world.operator_unloads
    # A prefetch that was given up before it began has wasted nothing.
    unloaded = gone and step is not Step.LOAD_GIVEN_UP
    if unloaded and status.load_cause is LoadCause.PREFETCH and not status.used_since_load:
        tally = world.prefetches
        world = replace(world, prefetches=replace(tally, wasted=tally.wasted + 1))
    world = replace(
        world, operator_unloads=world.operator_unloads - {model} if gone else world.operator_unloads
    )
    return _with_model(
        world,
        replace(
            status,
            residency=after,
            residency_since_s=at_s,
            cooldown_until_s=None if after is Residency.HOT else status.cooldown_until_s,
            load_cause=None if gone else status.load_cause,
            used_since_load=status.used_since_load and not gone,
            kept_out=by_operator or (status.kept_out and after is not Residency.HOT),
        ),
    )


def _observed(world: WorldSnapshot, event: NodeObserved) -> WorldSnapshot:
    resident = frozenset(event.resident)
    for status in world.on_node(event.node):
        # ``at_s`` is when the poll began: what changed since is newer than the answer.
        if status.residency_since_s < event.at_s:
            world = _seen(world, status, event.at_s, resident=status.model in resident)
    ours = sum(status.occupied_bytes for status in world.on_node(event.node))
    used = event.memory_used_bytes
    return _with_node(
        world,
        replace(
            _node(world, event.node),
            alive=True,
            seen_at_s=event.at_s,
            memory_total_bytes=event.memory_total_bytes,
            memory_used_bytes=used,
            used_by_others_bytes=0 if used is None else max(0, used - ours),
            model_limit=event.model_limit,
        ),
    )


def _seen(
    world: WorldSnapshot, status: ModelStatus, at_s: float, *, resident: bool
) -> WorldSnapshot:
    """What a poll says of one model, against what we believe."""
    name = status.model
    if resident:
        world = _granted(world, name)
    if status.residency is Residency.LOADING and status.load_cause is LoadCause.GATEWAY:
        # Not our order: the gateway that began it may be gone and never tell its end.
        if resident:
            return _step(world, name, Step.LOADED, at_s)
        given_up = at_s - status.residency_since_s > FOREIGN_LOAD_LIMIT_S
        return _step(world, name, Step.LOAD_GIVEN_UP, at_s) if given_up else world
    step = Step.SEEN_RESIDENT if resident else Step.SEEN_ABSENT
    if not applies(status.residency, step):
        return world
    world = _step(world, name, step, at_s)
    if not resident:
        return world
    return _with_model(world, replace(world.models[name], load_cause=LoadCause.EXTERNAL))


def _with_model(world: WorldSnapshot, status: ModelStatus) -> WorldSnapshot:
    return replace(world, models={**world.models, status.model: status})


def _with_node(world: WorldSnapshot, status: NodeStatus) -> WorldSnapshot:
    return replace(world, nodes={**world.nodes, status.node: status})


def _node(world: WorldSnapshot, node: NodeId) -> NodeStatus:
    return world.nodes.get(node) or NodeStatus(node=node)
