"""From the world and the forecasts to a plan: pure, driven by events and its own next tick.

One run, per node that answers: what must be resident now (a request waits, somebody asked)
comes first, in order of arrival, until load slots or room run out; only when nothing of that
is left and no load runs may one model be prefetched. Each load names the victims that make
its room. A victim is never busy, loading, pinned or waited for. Every outcome has a reason;
a hold is recorded when it begins and not again while it lasts.
"""

from __future__ import annotations

from dataclasses import replace

from contracts.config import PlannerConfig
from contracts.events import UnloadCause
from contracts.forecasts import Forecasts
from contracts.plan import Outcome, Plan, PlannerState, PlanResult, UnloadModel
from contracts.reasons import Reason
from contracts.world import Residency, WorldSnapshot
from controller.demand import moments_s
from controller.demand_loads import must_loads
from controller.draft import Draft, is_ordered
from controller.eviction import idle_models, is_spared
from controller.policies.base import LOOK_S, Context, Policy, Victim
from controller.policies.curves import CurveBoard
from controller.policies.registry import policy_named
from controller.precedence import is_due
from controller.precedence import moments_s as schedule_moments_s
from controller.prefetching import prefetch
from controller.pressure import come_back, give_way
from controller.standby import stand_by
from controller.warm import warm
from controller.wishes import idle_stand_ins
from controller.yielding import let_go

__all__ = ["is_ordered", "plan"]

_MIB = 1024**2


def plan(
    *, world: WorldSnapshot, forecasts: Forecasts, state: PlannerState, config: PlannerConfig
) -> PlanResult:
    """What to load and unload now, and why.

    ``world.taken_at_s`` is now. The plan states wanted ends; ordering it is the caller's,
    who passes ``fold.commit(world, plan)`` in next time. The same arguments give the same plan.
    """
    policy = policy_named(config.policy)
    draft = Draft(policy.name, world, state.sequence + 1, state.last_said)
    board = state.memo if isinstance(state.memo, CurveBoard) else CurveBoard()
    for node in sorted(world.nodes):
        if world.nodes[node].alive:
            context = Context(
                now_s=world.taken_at_s,
                node=node,
                world=world,
                forecasts=forecasts,
                state=state,
                config=config,
                models=draft.on_node(node),
                board=board,
            )
            state = policy.learn(context)
            _plan_node(draft, replace(context, state=state), policy)
    return PlanResult(
        plan=Plan(
            plan_id=f"p{draft.sequence}",
            made_at_s=world.taken_at_s,
            based_on=world.generation,
            mode=world.mode,
            actions=tuple(draft.actions),
            decisions=tuple(draft.decisions),
        ),
        state=replace(
            state,
            sequence=draft.sequence,
            last_said=draft.said,
            gdsf_inflation=max(state.gdsf_inflation, draft.greatest_evicted_value),
            memo=board,
        ),
        next_tick_at_s=_next_tick_s(world, config),
    )


def _plan_node(draft: Draft, context: Context, policy: Policy) -> None:
    _operator_unloads(draft, context)
    let_go(draft, context, policy)
    give_way(draft, context, policy)
    blocked = must_loads(draft, context, policy)
    if not blocked:
        _expire(draft, context, policy)
        come_back(draft, context, policy)
        stand_by(draft, context, policy)
        prefetch(draft, context, policy)
    warm(draft, context)


def _operator_unloads(draft: Draft, context: Context) -> None:
    if not context.world.operator_unloads:
        return
    for status in draft.on_node(context.node):
        if status.model in context.world.operator_unloads and status.residency is Residency.HOT:
            if status.in_flight or status.waiting or is_spared(status, context.now_s):
                draft.say(
                    status.model,
                    Outcome.HOLD,
                    Reason.IN_FLIGHT,
                    (("in_flight", status.in_flight), ("waiting", status.waiting)),
                )
            elif status.pinned:
                held_mb = status.occupied_bytes // _MIB
                draft.say(status.model, Outcome.HOLD, Reason.PINNED, (("occupied_mb", held_mb),))
            else:
                victim = Victim(
                    model=status.model,
                    freed_bytes=status.occupied_bytes,
                    loss=0.0,
                    reason=Reason.OPERATOR,
                    evidence=(("freed_mb", status.occupied_bytes // _MIB),),
                )
                draft.unload(victim, status.node, UnloadCause.OPERATOR, "")


def _expire(draft: Draft, context: Context, policy: Policy) -> None:
    if draft.room(context.node, context.config, policy.model_limit(context)).loading:
        # A backend that sizes itself by what is free fails when that grows under it.
        return
    idle = idle_models(draft.world, draft.on_node(context.node))
    idle = tuple(
        status
        for status in idle
        if not is_due(draft.world, status) and status.model not in context.config.standby
    )
    for victim in policy.expired(context, idle):
        draft.unload(victim, context.node, UnloadCause.IDLE, "")
    going = {action.model for action in draft.actions if isinstance(action, UnloadModel)}
    for status in idle_stand_ins(draft.world, idle):
        if status.model not in going:
            since_s = max(status.residency_since_s, status.last_used_at_s or 0.0)
            victim = Victim(
                model=status.model,
                freed_bytes=status.occupied_bytes,
                loss=0.0,
                reason=Reason.IDLE_TIMEOUT,
                evidence=(("idle_s", round(context.now_s - since_s, 1)),),
            )
            draft.unload(victim, context.node, UnloadCause.IDLE, "")


def _next_tick_s(world: WorldSnapshot, config: PlannerConfig) -> float:
    """The next moment at which something may change without an event."""
    now_s = world.taken_at_s
    cooldowns = [
        status.cooldown_until_s
        for status in world.models.values()
        if status.waiting and status.cooldown_until_s is not None
        if status.cooldown_until_s > now_s
    ]
    waits_s = moments_s(world, tuple(world.models.values()), config)
    return min([now_s + LOOK_S, *cooldowns, *waits_s, *schedule_moments_s(world)])
