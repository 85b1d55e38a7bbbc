"""What LocalAI did that nobody here ordered: which models are gone, and why. Pure."""

from __future__ import annotations

from contracts.events import NodeObserved, UnloadCause
from contracts.ids import ModelId
from contracts.plan import Decision, Outcome
from contracts.reasons import Reason
from contracts.world import NodeStatus, Residency, WorldSnapshot

POLICY = "localai"

_UNLOADS = frozenset(
    {
        "single_backend",
        "max_active_backends",
        "watchdog_idle",
        "watchdog_busy",
        "memory_reclaimer",
        "force_eviction_when_busy",
    }
)
"""Settings of LocalAI that unload models; their warnings name them."""


def gone_unordered(
    before: WorldSnapshot, after: WorldSnapshot, event: NodeObserved
) -> tuple[ModelId, ...]:
    """Models that were resident on the node by what we knew, and are not by what it says.

    What we drain or stop ourselves ends in an event of its own.
    """
    was = {
        status.model for status in before.on_node(event.node) if status.residency is Residency.HOT
    }
    gone = {
        status.model
        for status in after.on_node(event.node)
        if status.model in was and status.residency is Residency.COLD
    }
    node = before.nodes.get(event.node)
    if node is not None:
        # Copies have no residency of their own.
        gone |= {
            name
            for name in node.residents
            if name not in event.resident
            and name in after.models
            and after.models[name].node != event.node
        }
    return tuple(sorted(gone))


def cause_of(event: NodeObserved) -> UnloadCause:
    """Everything at once is a restart; else LocalAI's own rules, or somebody's call."""
    return UnloadCause.RESTART if event.restarted else UnloadCause.EXTERNAL


def suspects(node: NodeStatus | None) -> str:
    """Settings of the node that unload models, as ``name = value``; empty where none is known."""
    if node is None or node.facts is None:
        return ""
    return ", ".join(
        f"{warning.setting} = {warning.value}"
        for warning in node.facts.warnings
        if warning.setting in _UNLOADS
    )


def told_as(
    event: NodeObserved, gone: tuple[ModelId, ...], node: NodeStatus | None
) -> tuple[Decision, ...]:
    """One record for each model, so that a person who asks why it went finds out."""
    restarted = event.restarted
    set_there = suspects(node)
    evidence: tuple[tuple[str, float | str], ...] = (("node", event.node),)
    if not restarted and set_there:
        evidence = (*evidence, ("set_there", set_there))
    return tuple(
        Decision(
            policy=POLICY,
            subject=model,
            outcome=Outcome.CHANGE,
            reason=Reason.LOCALAI_RESTARTED if restarted else Reason.LOCALAI_UNLOADED,
            evidence=evidence,
            decision_id=f"s{event.event_id}-{place}",
            made_at_s=event.at_s,
        )
        for place, model in enumerate(gone)
    )
