"""What one LocalAI is, for people: version, calls, what fights the plan there, peers."""

from __future__ import annotations

from typing import TypedDict

from api.control import schemas
from contracts.ids import NodeId
from contracts.instances import primary_of
from contracts.node_facts import Access, NodeFacts
from contracts.world import NodeStatus, WorldSnapshot


class FactViews(TypedDict):
    """Fields of ``schemas.NodeView``."""

    version: str | None
    calls: dict[str, str]
    warnings: list[schemas.NodeWarningView]
    peers: list[schemas.PeerView]
    sync_s: float | None
    call_p95_s: float | None
    discovery_s: float | None


def fact_views(node: NodeStatus) -> FactViews:
    """All of it; nothing where it has not been looked up yet."""
    facts = node.facts or NodeFacts()
    known = facts.capabilities
    return FactViews(
        version=known.version or None,
        calls={
            call.value: access.value
            for call, access in sorted(known.calls.items())
            if access is not Access.UNKNOWN
        },
        warnings=[
            schemas.NodeWarningView(
                setting=warning.setting,
                value=warning.value,
                problem=warning.problem,
                remedy=warning.remedy,
            )
            for warning in facts.warnings
        ],
        peers=[
            schemas.PeerView(
                name=peer.name,
                kind=peer.kind,
                online=peer.online,
                memory_used_ratio=peer.memory_used_ratio,
                models=peer.models,
            )
            for peer in facts.peers
        ],
        sync_s=facts.health.sync_s,
        call_p95_s=facts.health.call_p95_s,
        discovery_s=facts.health.discovery_s,
    )


def instance_view(world: WorldSnapshot, node: NodeId) -> schemas.InstanceView | None:
    """What is known of a node that was found behind a name; None for one that is configured."""
    instance = world.instances.get(node)
    if instance is None:
        return None
    return schemas.InstanceView(
        address=instance.address or None,
        known_since_s=instance.joined_at_s,
        missing_since_s=instance.missing_since_s,
        leaving=instance.is_leaving,
        primary=primary_of(world.instances) == node,
    )
