"""Nodes that come into the world and leave it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import assert_never

from contracts.events import NodeJoined, NodeLeft, NodeLost
from contracts.ids import NodeId
from contracts.instances import Instance
from contracts.plan import PlannerState
from contracts.world import ModelStatus, NodeStatus, Residency, WorldSnapshot


def changed(world: WorldSnapshot, event: NodeLost | NodeJoined | NodeLeft) -> WorldSnapshot:
    """The world after a node does not answer, has come or has left."""
    match event:
        case NodeLost():
            # What it held is not known from here on.
            node = world.nodes.get(event.node) or NodeStatus(node=event.node)
            lost = replace(node, alive=False, residents=())
            return replace(world, nodes={**world.nodes, event.node: lost})
        case NodeJoined():
            return joined(world, event)
        case NodeLeft():
            return left(world, event)
        case _:
            assert_never(event)


def joined(world: WorldSnapshot, event: NodeJoined) -> WorldSnapshot:
    """The world with an instance that is to be asked yet; one that is known stays as it is."""
    node = event.node
    known = world.instances.get(node)
    instance = known or Instance(node=node, address=event.address, joined_at_s=event.at_s)
    return replace(
        world,
        nodes={**world.nodes, node: world.nodes.get(node) or NodeStatus(node=node)},
        instances={**world.instances, node: instance},
    )


def left(world: WorldSnapshot, event: NodeLeft) -> WorldSnapshot:
    """The world without a node; its models go to others that list them, or with it."""
    gone = event.node
    others = [world.nodes[name] for name in sorted(world.nodes) if name != gone]
    models = {}
    for name, status in world.models.items():
        after = _elsewhere(status, others, event.at_s) if status.node == gone else status
        if after is not None:
            models[name] = after
    return replace(
        world,
        nodes={node.node: node for node in others},
        instances={name: one for name, one in world.instances.items() if name != gone},
        hosts={name: host for name, host in world.hosts.items() if name != gone},
        models=models,
        requests={
            request_id: request
            for request_id, request in world.requests.items()
            if request.model in models
        },
    )


def with_instances(world: WorldSnapshot, instances: Mapping[NodeId, Instance]) -> WorldSnapshot:
    """The world with what a look found of instances that are in it."""
    changed = {
        name: replace(world.nodes[name], leaving=one.is_leaving)
        for name, one in instances.items()
        if name in world.nodes and world.nodes[name].leaving != one.is_leaving
    }
    nodes = {**world.nodes, **changed} if changed else world.nodes
    known = {name: one for name, one in instances.items() if name in world.nodes}
    return replace(world, nodes=nodes, instances=known)


def on_nodes(world: WorldSnapshot, nodes: Collection[NodeId]) -> WorldSnapshot:
    """The world without nodes that are configured no more, and without what was on them.

    A model that another node lists as well comes back with that node's next list.
    """
    models = {name: status for name, status in world.models.items() if status.node in nodes}
    return replace(
        world,
        nodes={name: node for name, node in world.nodes.items() if name in nodes},
        instances={name: one for name, one in world.instances.items() if name in nodes},
        models=models,
        requests={
            request_id: request
            for request_id, request in world.requests.items()
            if request.model in models
        },
    )


def answering(world: WorldSnapshot) -> frozenset[NodeId]:
    """Nodes that answered the last time they were asked."""
    return frozenset(name for name, node in world.nodes.items() if node.alive)


def _elsewhere(
    status: ModelStatus, others: Collection[NodeStatus], now_s: float
) -> ModelStatus | None:
    """The model at a node that lists it, where it is resident if there is one; None: nowhere."""
    listing = [node for node in others if status.model in node.lists]
    home = min(
        listing,
        key=lambda node: (not node.alive, node.leaving, status.model not in node.residents),
        default=None,
    )
    if home is None:
        return None
    return moved(status, home.node, is_there=status.model in home.residents, now_s=now_s)


def moved(status: ModelStatus, home: NodeId, *, is_there: bool, now_s: float) -> ModelStatus:
    """The same model at another home: what was said of it at the one before holds no more."""
    return replace(
        status,
        node=home,
        residency=Residency.HOT if is_there else Residency.COLD,
        residency_since_s=status.residency_since_s if is_fresh(status) else now_s,
        cooldown_until_s=None,
        failure="",
        load_cause=None,
        spared_until_s=None,
    )


def is_fresh(status: ModelStatus) -> bool:
    """Whether it was never loaded nor asked for, as far as is known."""
    return status.last_used_at_s is None and status.load_cause is None


def without_node(state: PlannerState, node: NodeId) -> PlannerState:
    """What a policy remembers, without what it remembers of a node that has left."""
    guards = {name: guard for name, guard in state.guards.items() if name != node}
    return replace(state, guards=guards)
