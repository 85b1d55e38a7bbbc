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
    FeedbackGiven,
    FirstTokenSent,
    IntentSignal,
    LoadCause,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadStarted,
    ModelUnloaded,
    NodeJoined,
    NodeLeft,
    NodeLost,
    NodeObserved,
    RequestCancelled,
    RequestCompleted,
    RequestDispatched,
    RequestFailed,
    RequestReceived,
)
from contracts.ids import ModelId, NodeId
from contracts.plan import LoadModel, Plan, UnloadModel
from contracts.reasons import Reason
from contracts.world import (
    LoadTime,
    ModelStatus,
    NodeStatus,
    Residency,
    WorldSnapshot,
)
from controller import accounts, membership
from controller.lifecycle import Step, applies, follow
from controller.open_requests import (
    dispatch_request,
    end_request,
    receive_request,
    with_model,
)
from controller.strains import with_load

LOAD_KIND = "load"
UNLOAD_KIND = "unload"

_FOR_OTHERS = frozenset({Reason.OTHERS_NEED, Reason.GPU_YIELDED})

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

FIRST_REFUSED_SPARE_S = 20.0
LONGEST_SPARE_S = 300.0
"""After a stop that LocalAI did not carry out: 20 s, 40 s … until the next try."""

FOREIGN_LOAD_LIMIT_S = 600.0
"""A load that a gateway began counts as ended when no poll has shown its model for so long."""


def fold(world: WorldSnapshot, event: AnyEvent) -> WorldSnapshot:
    """The world after ``event``."""
    match event:
        case RequestReceived():
            after = receive_request(world, event)
        case RequestDispatched():
            after = dispatch_request(world, event)
        case RequestCompleted() | RequestFailed() | RequestCancelled():
            after = end_request(world, event.request_id, event.at_s)
        case ModelLoadStarted() | ModelLoaded() | ModelLoadFailed() | ModelUnloaded():
            after = _model_event(world, event)
        case NodeObserved():
            after = _observed(world, event)
        case NodeLost() | NodeJoined() | NodeLeft():
            after = membership.changed(world, event)
        case ActionFailed():
            after = _action_failed(world, event)
        case FirstTokenSent() | IntentSignal() | ActionApplied() | FeedbackGiven():
            after = world
        case _:
            assert_never(event)
    return replace(
        after, taken_at_s=max(world.taken_at_s, event.at_s), generation=world.generation + 1
    )


def _model_event(
    world: WorldSnapshot, event: ModelLoadStarted | ModelLoaded | ModelLoadFailed | ModelUnloaded
) -> WorldSnapshot:
    """What happened to a copy of a model; only that of its home is ours to plan."""
    if isinstance(event, ModelUnloaded) and not _is_home(world, event.model, event.node):
        return _without_copy(world, event)
    if isinstance(event, ModelLoaded | ModelUnloaded):
        resident = isinstance(event, ModelLoaded)
        world = _with_resident(world, event.node, event.model, resident=resident)
    if not _is_home(world, event.model, event.node):
        return world
    match event:
        case ModelLoadStarted():
            return _load_started(world, event.model, event.cause, event.at_s)
        case ModelLoaded():
            return _loaded(world, event)
        case ModelLoadFailed():
            return _load_failed(world, event)
        case ModelUnloaded():
            node = accounts.unloaded(world.nodes[event.node], world.models[event.model], event)
            return _step(_with_node(world, node), event.model, Step.UNLOADED, event.at_s)
        case _:
            assert_never(event)


def _without_copy(world: WorldSnapshot, event: ModelUnloaded) -> WorldSnapshot:
    """What a copy took counted as used by others, and is free now."""
    status, node = world.models.get(event.model), world.nodes.get(event.node)
    if status is None or node is None or event.model not in node.residents:
        return world
    world = _with_resident(world, event.node, event.model, resident=False)
    node = world.nodes[event.node]
    others_bytes = max(0, node.used_by_others_bytes - (status.footprint_bytes or 0))
    return _with_node(world, replace(node, used_by_others_bytes=others_bytes))


def commit(world: WorldSnapshot, plan: Plan) -> WorldSnapshot:
    """The world once ``plan`` is ordered: victims drain, loads count against the budget."""
    for action in plan.actions:
        match action:
            case UnloadModel() if _is_home(world, action.model, action.node):
                world = _step(world, action.model, Step.DRAIN, plan.made_at_s)
                if action.reason in _FOR_OTHERS and action.model in world.models:
                    status = world.models[action.model]
                    world = with_model(world, replace(status, yielded=status.yielded + 1))
            case LoadModel():
                world = _load_started(world, action.model, action.cause, plan.made_at_s)
            case _:
                pass
    return replace(world, generation=world.generation + 1)


def _load_started(
    world: WorldSnapshot, model: ModelId, cause: LoadCause, at_s: float
) -> WorldSnapshot:
    status = world.models.get(model)
    if status is None:
        return world
    if status.residency is Residency.LOADING:
        # Ordered before, begun now: its time counts from here.
        return with_model(world, replace(status, residency_since_s=at_s))
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
    return with_model(
        _granted(world, model),
        replace(
            status,
            residency=Residency.LOADING,
            residency_since_s=at_s,
            load_cause=cause,
            yielded=status.yielded if cause is LoadCause.PREFETCH else 0,
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
        measured = LoadTime(
            model=event.model,
            node=event.node,
            ended_at_s=event.at_s,
            load_s=event.load_s,
            expected_s=load_s,
        )
        world = with_load(world, measured)
        load_s = event.load_s if load_s is None else load_s + LOAD_S_SHARE * (event.load_s - load_s)
    status = accounts.loaded(status, _node(world, event.node), event)
    return with_model(
        _granted(world, event.model),
        replace(
            status,
            residency=Residency.HOT,
            residency_since_s=event.at_s,
            load_s=load_s,
            load_cause=status.load_cause or event.cause,
            last_used_at_s=max(status.last_used_at_s or event.at_s, event.at_s),
            out_of_memory_bytes=None,
            out_of_memory_until_s=None,
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
    failed = accounts.failed_load(failed, _node(world, event.node), event)
    return with_model(_granted(world, event.model), failed)


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
    status = world.models[name]
    spare_s, failures = SPARE_S, status.unload_failures
    if event.is_refused:
        # LocalAI would not, or could not: asking again at once would be asking all the time.
        spare_s = min(LONGEST_SPARE_S, FIRST_REFUSED_SPARE_S * 2.0 ** min(failures, 10))
        failures += 1
    return with_model(
        world,
        replace(
            status,
            spared_until_s=event.at_s + spare_s,
            unload_failures=failures,
            unload_failure=event.error[:MAX_FAILURE_CHARS] if event.is_refused else "",
        ),
    )


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
    return with_model(
        world,
        replace(
            status,
            residency=after,
            residency_since_s=at_s,
            cooldown_until_s=None if after is Residency.HOT else status.cooldown_until_s,
            load_cause=None if gone else status.load_cause,
            used_since_load=status.used_since_load and not gone,
            unload_failures=0 if gone else status.unload_failures,
            unload_failure="" if gone else status.unload_failure,
            kept_out=by_operator or (status.kept_out and after is not Residency.HOT),
        ),
    )


def _observed(world: WorldSnapshot, event: NodeObserved) -> WorldSnapshot:
    resident = frozenset(event.resident)
    if event.restarted:
        world = _without_cooldowns(world, event)
    for status in world.on_node(event.node):
        # ``at_s`` is when the poll began: what changed since is newer than the answer.
        if status.residency_since_s < event.at_s:
            world = _seen(world, status, event.at_s, resident=status.model in resident)
    node = replace(
        accounts.observed(_node(world, event.node), world.on_node(event.node), event),
        alive=True,
        seen_at_s=event.at_s,
        residents=tuple(sorted(resident)),
        model_limit=event.model_limit,
        reading=event.reading,
    )
    return _with_guesses(_with_node(world, node), node, event.at_s)


def _with_guesses(world: WorldSnapshot, node: NodeStatus, now_s: float) -> WorldSnapshot:
    """Splits that can only be guessed, and failures for memory that are too long ago."""
    models = world.on_node(node.node)
    changed = {
        name: replace(world.models[name], split=split)
        for name, split in accounts.guessed(node, models).items()
    }
    for status in models:
        if accounts.forgets_failure(status, now_s):
            changed[status.model] = replace(
                changed.get(status.model, status),
                out_of_memory_bytes=None,
                out_of_memory_until_s=None,
            )
    return replace(world, models={**world.models, **changed}) if changed else world


def _without_cooldowns(world: WorldSnapshot, event: NodeObserved) -> WorldSnapshot:
    """A LocalAI that began anew remembers no failed load."""
    for status in world.on_node(event.node):
        if status.cooldown_until_s is not None and status.residency_since_s < event.at_s:
            world = with_model(world, replace(status, cooldown_until_s=None))
    return world


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
    return with_model(world, replace(world.models[name], load_cause=LoadCause.EXTERNAL))


def _is_home(world: WorldSnapshot, model: ModelId, node: NodeId) -> bool:
    """Whether what is told of ``node`` is told of the model's home; else it is another copy."""
    status = world.models.get(model)
    return status is not None and status.node == node


def _with_resident(
    world: WorldSnapshot, node: NodeId, model: ModelId, *, resident: bool
) -> WorldSnapshot:
    status = world.nodes.get(node)
    if status is None or (model in status.residents) == resident:
        return world
    kept = tuple(name for name in status.residents if name != model)
    residents = tuple(sorted((*kept, model))) if resident else kept
    return _with_node(world, replace(status, residents=residents))


def _with_node(world: WorldSnapshot, status: NodeStatus) -> WorldSnapshot:
    return replace(world, nodes={**world.nodes, status.node: status})


def _node(world: WorldSnapshot, node: NodeId) -> NodeStatus:
    return world.nodes.get(node) or NodeStatus(node=node)
