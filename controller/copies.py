"""Copies of models on other nodes than their home: when they have to go. Pure.

Nobody plans for them, so they are only unloaded in two cases: somebody wants the model gone, or
a load that is waited for does not fit on their node and nothing of its own could go for it.
Then those go first that were used longest ago, and of none that serves a request.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from contracts.config import PlannerConfig
from contracts.events import UnloadCause
from contracts.ids import ModelId, NodeId
from contracts.plan import Decision, Outcome, Plan, PlannerState, PlanResult, UnloadModel
from contracts.reasons import Reason
from contracts.world import ModelStatus, NodeStatus, Residency, WorldSnapshot
from controller.eviction import idle_models
from controller.memory import room

POLICY = "copies"


@dataclass(frozen=True, slots=True)
class Copy:
    """A model that is resident on a node that is not its home."""

    model: ModelId
    node: NodeId


def copies_of(world: WorldSnapshot, model: ModelId) -> tuple[Copy, ...]:
    """Where ``model`` is resident besides its home."""
    status = world.models.get(model)
    if status is None:
        return ()
    return tuple(
        Copy(model, name)
        for name, node in sorted(world.nodes.items())
        if node.alive and name != status.node and model in node.residents
    )


def copies_in_the_way(
    world: WorldSnapshot, config: PlannerConfig, leaving: Collection[Copy]
) -> tuple[Copy, ...]:
    """Those that have to go for loads that are waited for; none that goes already."""
    if len(world.nodes) < 2:
        return ()
    found: list[Copy] = []
    for name in sorted(world.nodes):
        if world.nodes[name].alive:
            found.extend(_on_node(world, world.nodes[name], config, leaving))
    return tuple(found)


def copies_plan(
    world: WorldSnapshot,
    state: PlannerState,
    copies: tuple[Copy, ...],
    *,
    cause: UnloadCause,
    reason: Reason,
) -> PlanResult:
    """Orders to unload them, and the decisions behind that."""
    sequence = state.sequence + 1
    actions = tuple(
        UnloadModel(
            action_id=f"a{sequence}-{number}",
            model=copy.model,
            node=copy.node,
            cause=cause,
            reason=reason,
        )
        for number, copy in enumerate(copies)
    )
    decisions = tuple(
        Decision(
            policy=POLICY,
            subject=copy.model,
            outcome=Outcome.CHANGE,
            reason=reason,
            evidence=(("node", copy.node),),
            decision_id=f"d{sequence}-{number}",
            made_at_s=world.taken_at_s,
        )
        for number, copy in enumerate(copies)
    )
    plan = Plan(
        plan_id=f"p{sequence}",
        made_at_s=world.taken_at_s,
        based_on=world.generation,
        mode=world.mode,
        actions=actions,
        decisions=decisions,
    )
    return PlanResult(
        plan=plan, state=replace(state, sequence=sequence), next_tick_at_s=world.taken_at_s
    )


def _on_node(
    world: WorldSnapshot, node: NodeStatus, config: PlannerConfig, leaving: Collection[Copy]
) -> list[Copy]:
    copies = [
        world.models[model]
        for model in node.residents
        if model in world.models and world.models[model].node != node.node
    ]
    wanted = _wanted(world, node.node)
    if not copies or wanted is None:
        return []
    here = room(world, node.node, config)
    could_go = idle_models(world, world.on_node(node.node))
    missing_bytes = here.missing_bytes(here.main_need(wanted)) - sum(
        status.occupied_bytes for status in could_go
    )
    going = [Copy(status.model, node.node) for status in copies]
    missing_bytes -= sum(
        world.models[copy.model].footprint_bytes or 0 for copy in going if copy in leaving
    )
    busy = {request.model for request in world.requests.values() if request.node == node.node}
    found = []
    for status in sorted(copies, key=lambda each: (each.last_used_at_s or 0.0, each.model)):
        copy = Copy(status.model, node.node)
        if missing_bytes <= 0:
            break
        if copy in leaving or status.model in busy or not status.footprint_bytes:
            continue
        found.append(copy)
        missing_bytes -= status.footprint_bytes
    return found if missing_bytes <= 0 else []


def _wanted(world: WorldSnapshot, node: NodeId) -> ModelStatus | None:
    """The load on this node that was asked for first and has not begun."""
    asked = [
        status
        for status in world.on_node(node)
        if status.residency is Residency.COLD
        and (status.waiting or status.model in world.operator_loads)
    ]
    return min(
        asked,
        key=lambda status: (
            world.taken_at_s if status.wanted_since_s is None else status.wanted_since_s
        ),
        default=None,
    )
