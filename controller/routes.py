"""What gateways are told, made from the world: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from contracts.config import ModelProfile, PlannerConfig
from contracts.events import PriorityClass
from contracts.ids import ModelId, NodeId
from contracts.instances import primary_of
from contracts.messages import LoadAnswer
from contracts.plan import Outcome, PlannerState
from contracts.reasons import Reason, explain
from contracts.routing import ModelRoute, NodeRoute, RoutingTable
from contracts.world import ModelStatus, Residency, WorldSnapshot
from controller.copies import Copy
from controller.homes import CPU
from controller.memory import room
from controller.places import takes_main_memory
from controller.policies.base import expected_load_s
from controller.yielding import handed_over

TABLE_REPEAT_S = 10.0
USE_S = 1.0
"""As often as gateways say in their beats what they have in flight."""

_NOWHERE: dict[NodeId, Residency] = {}
_REFUSALS = {
    Reason.COOL_DOWN,
    Reason.GPU_YIELDED,
    Reason.GROUP_LIMIT,
    Reason.NEVER_FITS,
    Reason.OUT_OF_MEMORY,
}


def routing_table(
    world: WorldSnapshot,
    *,
    token: int,
    config: PlannerConfig,
    profiles: Mapping[ModelId, ModelProfile],
    draining: Mapping[ModelId, str],
    aliases: Mapping[str, ModelId],
    leaving: Collection[Copy] = (),
    preempting: Iterable[ModelId] = (),
) -> RoutingTable:
    """The table that the leader with this fencing token publishes."""
    in_flight = Counter(request.node for request in world.requests.values())
    return RoutingTable(
        token=token,
        made_at_s=world.taken_at_s,
        mode=world.mode,
        models=_routes(world, profiles, leaving),
        nodes={
            name: NodeRoute(
                node=name,
                alive=node.alive and not node.leaving,
                free_bytes=_free_bytes(world, config, name),
                accelerator=node.accelerator,
                in_flight=in_flight[name],
                address=_address(world, name),
            )
            for name, node in world.nodes.items()
        },
        draining=dict(draining),
        aliases=dict(aliases),
        classes=_classes(world, profiles),
        preempting=frozenset(preempting),
        primary=primary_of(world.instances),
    )


def _address(world: WorldSnapshot, node: NodeId) -> str:
    instance = world.instances.get(node)
    return "" if instance is None else instance.address


def is_news(table: RoutingTable, last: RoutingTable | None) -> bool:
    """Whether gateways need to be told: an unchanged table is repeated now and then.

    With traffic the last uses and what is in flight change all the time. They alone are told
    once in ``USE_S``, since a table of many models and nodes is long.
    """
    if last is None:
        return True
    if replace(table, made_at_s=last.made_at_s) == last:
        return table.made_at_s >= last.made_at_s + TABLE_REPEAT_S
    return table.made_at_s >= last.made_at_s + USE_S or _without_use(table) != _without_use(last)


def _without_use(table: RoutingTable) -> RoutingTable:
    return replace(
        table,
        made_at_s=0.0,
        models={
            name: route if route.last_used_at_s is None else replace(route, last_used_at_s=None)
            for name, route in table.models.items()
        },
        nodes={name: replace(node, in_flight=0) for name, node in table.nodes.items()},
    )


def load_answer(
    world: WorldSnapshot, state: PlannerState, model: ModelId, leaving: Collection[Copy] = ()
) -> LoadAnswer:
    """What a gateway that waits for ``model`` is told, after a plan was committed."""
    status = world.models.get(model)
    if status is None:
        return _refusal(model, Reason.UNKNOWN_MODEL)
    if not world.mode.orders:
        return _refusal(model, Reason.OBSERVE_ONLY)
    if not world.nodes[status.node].alive:
        return _refusal(model, Reason.NODE_LOST, retry_after_s=1.0)
    if status.residency is Residency.HOT:
        return LoadAnswer(model=model, accepted=True, reason=Reason.RESIDENT, expected_s=0.0)
    outcome, reason = state.last_said.get(model, (Outcome.HOLD, Reason.LOADING))
    if status.residency in (Residency.DRAINING, Residency.UNLOADING):
        reason = Reason.DRAINING  # what was said of it is why it goes, not why its caller waits
    if reason is Reason.NEVER_FITS and any(copy.node == status.node for copy in leaving):
        reason = Reason.NO_ROOM  # a copy that takes its room is about to go
    if outcome is Outcome.HOLD and reason in _REFUSALS:
        wish = handed_over(world) if reason is Reason.GPU_YIELDED else None
        until_s = status.cooldown_until_s if wish is None else wish.until_s
        rest_s = None if until_s is None else max(0.0, until_s - world.taken_at_s)
        return _refusal(model, reason, retry_after_s=rest_s)
    return LoadAnswer(model=model, accepted=True, reason=reason, expected_s=_rest_s(world, status))


def _rest_s(world: WorldSnapshot, status: ModelStatus) -> float:
    """Seconds until the load should be done; the whole load where it has not begun."""
    load_s = expected_load_s(status)
    if status.residency is not Residency.LOADING:
        return load_s
    return max(0.0, load_s - (world.taken_at_s - status.residency_since_s))


def _refusal(model: ModelId, reason: Reason, *, retry_after_s: float | None = None) -> LoadAnswer:
    return LoadAnswer(
        model=model,
        accepted=False,
        reason=reason,
        retry_after_s=retry_after_s,
        message=f"{model}: {explain(reason)}",
    )


def _routes(
    world: WorldSnapshot, profiles: Mapping[ModelId, ModelProfile], leaving: Collection[Copy]
) -> dict[ModelId, ModelRoute]:
    """Each model at its home, and beside it where else it is known."""
    places = _places(world, leaving) if len(world.nodes) > 1 else {}
    routes = {}
    for name, status in world.models.items():
        known = places.get(name, _NOWHERE)
        only_home = not known or (len(known) == 1 and status.node in known)
        profile = profiles.get(name)
        routes[name] = _route(
            status,
            _NOWHERE if only_home else {**known, status.node: status.residency},
            slots=None if profile is None else profile.slots,
            cores=_cores(world, status, profile),
            main_bytes=_main_bytes(world, status),
        )
    return routes


def _places(
    world: WorldSnapshot, leaving: Collection[Copy]
) -> dict[ModelId, dict[NodeId, Residency]]:
    """Of each model the nodes that know it: with many nodes these are most of the table."""
    places: dict[ModelId, dict[NodeId, Residency]] = {}
    for name, node in world.nodes.items():
        for model in node.lists:
            at = places.get(model)
            if at is None:
                places[model] = {name: Residency.COLD}
            else:
                at[name] = Residency.COLD
        listed = set(node.lists)
        for model in node.residents:
            if model in listed:
                places[model][name] = Residency.HOT
    for copy in leaving:
        if copy.node in places.get(copy.model, _NOWHERE):
            places[copy.model][copy.node] = Residency.DRAINING
    return places


def _main_bytes(world: WorldSnapshot, status: ModelStatus) -> int | None:
    """What it takes of the memory that ``NodeRoute.free_bytes`` is about."""
    node = world.nodes.get(status.node)
    if status.on_host and node is not None and not takes_main_memory(status, node):
        return 0
    return status.footprint_bytes


def _route(
    status: ModelStatus,
    places: Mapping[NodeId, Residency],
    *,
    slots: int | None,
    cores: float | None,
    main_bytes: int | None,
) -> ModelRoute:
    loading = status.residency is Residency.LOADING
    return ModelRoute(
        model=status.model,
        node=status.node,
        residency=status.residency,
        expected_load_s=expected_load_s(status),
        load_started_at_s=status.residency_since_s if loading else None,
        cooldown_until_s=status.cooldown_until_s,
        failure=status.failure,
        last_used_at_s=status.last_used_at_s,
        footprint_bytes=main_bytes,
        pinned=status.pinned,
        places=places,
        slots=slots,
        group=status.group,
        cores=cores,
    )


def _cores(world: WorldSnapshot, status: ModelStatus, profile: ModelProfile | None) -> float | None:
    """Cores that one request takes: the threads of its model file, where it runs on CPUs."""
    node = world.nodes.get(status.node)
    on_cpu = status.on_host or (node is not None and node.accelerator == CPU)
    if not on_cpu:
        return None
    threads = None if profile is None else profile.threads
    return float(threads or 1)


def _free_bytes(world: WorldSnapshot, config: PlannerConfig, node: NodeId) -> int | None:
    here = room(world, node, config)
    return None if here.usable_bytes is None else here.usable_bytes - here.occupied_bytes


def _classes(
    world: WorldSnapshot, profiles: Mapping[ModelId, ModelProfile]
) -> dict[ModelId, PriorityClass]:
    declared = {
        name: profile.priority for name, profile in profiles.items() if profile.priority is not None
    }
    return declared | {name: sla.priority for name, sla in world.slas.items()}
