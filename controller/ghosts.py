"""Models that LocalAI lists although their process is dead: what is ordered then. Pure."""

from __future__ import annotations

from dataclasses import replace

from contracts.events import UnloadCause
from contracts.messages import GhostSeen
from contracts.plan import Decision, Outcome, Plan, PlannerState, PlanResult, UnloadModel
from contracts.reasons import Reason
from contracts.world import Residency, WorldSnapshot
from controller.eviction import is_spared

POLICY = "ghosts"


def ghost_plan(world: WorldSnapshot, state: PlannerState, seen: GhostSeen) -> PlanResult | None:
    """Have ``seen.node`` forget the model; None where there is nothing to order.

    Whoever carries it out makes sure that the process is dead: a gateway has only read an
    error. While that is looked into the model counts as draining, so that nothing is sent there.
    """
    status, node = world.models.get(seen.model), world.nodes.get(seen.node)
    if status is None or node is None or not node.alive or not world.mode.orders:
        return None
    if status.node == seen.node:
        is_there = status.residency is Residency.HOT and not is_spared(status, world.taken_at_s)
    else:
        is_there = seen.model in node.residents
    if not is_there:
        return None
    sequence = state.sequence + 1
    action = UnloadModel(
        action_id=f"a{sequence}-0",
        model=seen.model,
        node=seen.node,
        cause=UnloadCause.GHOST,
        reason=Reason.GHOST,
    )
    decision = Decision(
        policy=POLICY,
        subject=seen.model,
        outcome=Outcome.CHANGE,
        reason=Reason.GHOST,
        evidence=(("node", seen.node), ("seen_by", seen.gateway)),
        decision_id=f"d{sequence}-0",
        made_at_s=world.taken_at_s,
    )
    plan = Plan(
        plan_id=f"p{sequence}",
        made_at_s=world.taken_at_s,
        based_on=world.generation,
        mode=world.mode,
        actions=(action,),
        decisions=(decision,),
    )
    return PlanResult(
        plan=plan, state=replace(state, sequence=sequence), next_tick_at_s=world.taken_at_s
    )
