"""What is declared rather than observed: the models of a node, and what people set. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from contracts.config import ModelProfile
from contracts.events import PriorityClass
from contracts.ids import ModelId, NodeId
from contracts.memory import PlaceId
from contracts.node_facts import NodeFacts
from contracts.profiles import Estimate
from contracts.world import (
    OCCUPIES_MEMORY,
    Mode,
    ModelStatus,
    NodeStatus,
    Residency,
    Sla,
    WorldSnapshot,
)
from controller.footprints import told_footprint, with_footprint


def with_catalogue(
    world: WorldSnapshot,
    node: NodeId,
    models: Iterable[ModelId],
    profiles: Mapping[ModelId, ModelProfile],
    footprints: Mapping[ModelId, int],
    *,
    accelerator: str = "",
    facts: NodeFacts | None = None,
    measured: Mapping[ModelId, Mapping[PlaceId, Estimate]] = MappingProxyType({}),
) -> WorldSnapshot:
    """What ``node`` lists now: new models come in cold, missing ones go unless they hold memory.

    One that another node lists as well stays; ``homes`` finds its new home. Requests for a
    model that went are forgotten with it. A measured footprint stands over
    LocalAI's estimate, that over the declared one, and that over the size of the files.
    """
    listed = set(models)
    here = world.nodes.get(node) or NodeStatus(node=node)
    known_elsewhere = {
        name for other in world.nodes.values() if other.node != node for name in other.lists
    }
    merged: dict[ModelId, ModelStatus] = {
        name: status
        for name, status in world.models.items()
        if status.node != node
        or name in listed
        or name in known_elsewhere
        or status.residency in OCCUPIES_MEMORY
    }
    for name in listed:
        # Nothing is known of it yet, so that the poll that listed it may say where it is.
        status = merged.get(name) or ModelStatus(model=name, node=node)
        profile = profiles.get(name)
        told = told_footprint(footprints.get(name), profile)
        if profile is not None and profile.exclusive != status.exclusive:
            status = replace(status, exclusive=profile.exclusive)
        if status.node == node or status.footprint_bytes is None:
            status = with_footprint(status, here, measured.get(name, {}), told)
        merged[name] = status
    nodes = {
        **world.nodes,
        node: replace(
            here, lists=tuple(sorted(listed)), accelerator=accelerator, facts=facts or here.facts
        ),
    }
    requests = {
        request_id: request
        for request_id, request in world.requests.items()
        if request.model in merged
    }
    return replace(world, models=merged, nodes=nodes, requests=requests)


def with_controls(
    world: WorldSnapshot, *, mode: Mode, slas: Mapping[ModelId, Sla], pins: Iterable[ModelId]
) -> WorldSnapshot:
    """What people set."""
    pinned = frozenset(pins)
    models = {
        name: status
        if status.pinned == (name in pinned)
        else replace(status, pinned=name in pinned)
        for name, status in world.models.items()
    }
    return replace(world, mode=mode, slas=dict(slas), models=models)


def with_load_request(world: WorldSnapshot, model: ModelId) -> WorldSnapshot:
    """An operator wants ``model`` resident; nothing is left to do where it is or loads.

    The last wish stands: it takes back one to unload.
    """
    status = world.models.get(model)
    there = status is None or status.residency in (Residency.LOADING, Residency.HOT)
    return replace(
        world,
        operator_loads=world.operator_loads if there else world.operator_loads | {model},
        operator_unloads=world.operator_unloads - {model},
    )


def with_unload_request(world: WorldSnapshot, model: ModelId) -> WorldSnapshot:
    """An operator wants ``model`` gone; a model that is not there is not kept away.

    The last wish stands: it takes back one to load.
    """
    status = world.models.get(model)
    there = status is not None and status.residency in OCCUPIES_MEMORY
    return replace(
        world,
        operator_unloads=world.operator_unloads | {model} if there else world.operator_unloads,
        operator_loads=world.operator_loads - {model},
    )


def merged_profiles(
    found: Mapping[ModelId, ModelProfile], configured: Mapping[ModelId, ModelProfile]
) -> dict[ModelId, ModelProfile]:
    """What is declared of each model: the configuration stands over LocalAI's model files.

    Only of what LocalAI itself knows best its file's word holds where none is configured.
    """
    merged = {**found, **configured}
    for name, profile in configured.items():
        own = found.get(name)
        if own is not None:
            merged[name] = replace(
                profile,
                slots=own.slots if profile.slots is None else profile.slots,
                preload=profile.preload or own.preload,
                pinned=profile.pinned or own.pinned,
                modality=own.modality if profile.modality is None else profile.modality,
                weights=profile.weights or own.weights,
                weights_bytes=own.weights_bytes,
                exclusive=own.exclusive,
                revision=own.revision,
                threads=own.threads if profile.threads is None else profile.threads,
                gpu_layers=own.gpu_layers if profile.gpu_layers is None else profile.gpu_layers,
            )
    return merged


def declared_slas(
    profiles: Mapping[ModelId, ModelProfile], *, percentile: float = 95.0
) -> dict[ModelId, Sla]:
    """Latency targets that profiles declare, at ``percentile``; what people set goes first."""
    return {
        name: Sla(
            model=name,
            target_s=profile.target_s,
            percentile=percentile,
            priority=profile.priority or PriorityClass.REALTIME,
        )
        for name, profile in profiles.items()
        if profile.target_s is not None
    }
