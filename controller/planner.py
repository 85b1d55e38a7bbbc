"""From the world and the forecasts to a plan: pure, driven by events and its own next tick.

One run, per node that answers: what must be resident now (a request waits, somebody asked)
comes first, in order of arrival, until load slots or room run out; only when nothing of that
is left and no load runs may one model be prefetched. Each load names the victims that make
its room. A victim is never busy, loading, pinned or waited for. Every outcome has a reason;
a hold is recorded when it begins and not again while it lasts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from contracts.config import PlannerConfig
from contracts.events import LoadCause, UnloadCause
from contracts.forecasts import Forecasts, ForecastStatus
from contracts.ids import ModelId, NodeId
from contracts.plan import (
    Action,
    Decision,
    LoadModel,
    Outcome,
    Plan,
    PlannerState,
    PlanResult,
    UnloadModel,
)
from contracts.reasons import Reason
from contracts.world import Mode, ModelStatus, Residency, WorldSnapshot
from controller.eviction import choose, idle_models, is_spared, names
from controller.memory import Room, room
from controller.policies.base import Candidate, Context, Policy, Victim
from controller.policies.registry import policy_named

_NOT_ORDERED = ("mode", "observe")
"""Evidence on decisions that are recorded but not carried out."""

_ABSENT = frozenset({Residency.COLD, Residency.FAILED})
_MIB = 1024**2


def plan(
    *, world: WorldSnapshot, forecasts: Forecasts, state: PlannerState, config: PlannerConfig
) -> PlanResult:
    """What to load and unload now, and why.

    ``world.taken_at_s`` is now. The plan states wanted ends; ordering it is the caller's,
    who passes ``fold.commit(world, plan)`` in next time. The same arguments give the same plan.
    """
    policy = policy_named(config.policy)
    draft = _Draft(policy.name, world, state.sequence + 1)
    for node in sorted(world.nodes):
        if world.nodes[node].alive:
            context = Context(
                now_s=world.taken_at_s,
                node=node,
                world=world,
                forecasts=forecasts,
                state=state,
                config=config,
            )
            state = policy.learn(context)
            _plan_node(draft, replace(context, state=state), policy)
    decisions, last_said = draft.news(state)
    return PlanResult(
        plan=Plan(
            plan_id=f"p{draft.sequence}",
            made_at_s=world.taken_at_s,
            based_on=world.generation,
            mode=world.mode,
            actions=tuple(draft.actions),
            decisions=decisions,
        ),
        state=replace(
            state,
            sequence=draft.sequence,
            last_said=last_said,
            gdsf_inflation=max(state.gdsf_inflation, draft.greatest_evicted_value),
        ),
        next_tick_at_s=_next_tick_s(world, config),
    )


@dataclass(slots=True)
class _Draft:
    """The plan while it is written; ``world`` follows what was decided so far."""

    policy: str
    world: WorldSnapshot
    sequence: int
    actions: list[Action] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    greatest_evicted_value: float = 0.0

    def say(
        self,
        subject: ModelId | NodeId,
        outcome: Outcome,
        reason: Reason,
        evidence: tuple[tuple[str, float | str], ...] = (),
    ) -> None:
        self.decisions.append(
            Decision(
                policy=self.policy,
                subject=subject,
                outcome=outcome,
                reason=reason,
                evidence=evidence,
                decision_id=f"d{self.sequence}-{len(self.decisions)}",
                made_at_s=self.world.taken_at_s,
            )
        )

    def unload(self, victim: Victim, node: NodeId, cause: UnloadCause, wanted_by: str) -> None:
        self.actions.append(
            UnloadModel(
                action_id=f"a{self.sequence}-{len(self.actions)}",
                model=victim.model,
                node=node,
                cause=cause,
                reason=victim.reason,
            )
        )
        room_for = (("room_for", wanted_by),) if wanted_by else ()
        self.say(victim.model, Outcome.CHANGE, victim.reason, victim.evidence + room_for)
        self._mark(victim.model, Residency.DRAINING)

    def load(
        self,
        status: ModelStatus,
        cause: LoadCause,
        reason: Reason,
        victims: tuple[Victim, ...],
        evidence: tuple[tuple[str, float | str], ...],
    ) -> None:
        for victim in victims:
            self.unload(victim, status.node, UnloadCause.EVICTED, status.model)
            if victim.reason is Reason.LEAST_VALUE_PER_BYTE:
                self.greatest_evicted_value = max(self.greatest_evicted_value, victim.loss)
        self.actions.append(
            LoadModel(
                action_id=f"a{self.sequence}-{len(self.actions)}",
                model=status.model,
                node=status.node,
                cause=cause,
                reason=reason,
                after=names(victims),
            )
        )
        evicted = (("evicts", ", ".join(names(victims))),) if victims else ()
        self.say(status.model, Outcome.CHANGE, reason, evidence + evicted)
        self._mark(status.model, Residency.LOADING)

    def news(
        self, state: PlannerState
    ) -> tuple[tuple[Decision, ...], dict[str, tuple[Outcome, Reason]]]:
        """Changes that are ordered always; the rest only where it differs from the last run."""
        said = {d.subject: (d.outcome, d.reason) for d in self.decisions}
        ordered = is_ordered(self.world)
        fresh = tuple(
            decision if ordered else replace(decision, evidence=(*decision.evidence, _NOT_ORDERED))
            for decision in self.decisions
            if (ordered and decision.outcome is Outcome.CHANGE)
            or state.last_said.get(decision.subject) != (decision.outcome, decision.reason)
        )
        return fresh, said

    def _mark(self, model: ModelId, residency: Residency) -> None:
        status = replace(self.world.models[model], residency=residency)
        self.world = replace(self.world, models={**self.world.models, model: status})


def _plan_node(draft: _Draft, context: Context, policy: Policy) -> None:
    _operator_unloads(draft, context)
    blocked = _must_loads(draft, context, policy)
    if not blocked:
        _expire(draft, context, policy)
        _prefetch(draft, context, policy)


def _operator_unloads(draft: _Draft, context: Context) -> None:
    for status in draft.world.on_node(context.node):
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


def _must_loads(draft: _Draft, context: Context, policy: Policy) -> bool:
    """Loads that do not wait for a forecast. Whether one of them waits for others.

    Behind one that waits for room only those go on that need none: nothing is evicted past
    it, and a model that cannot get room for long does not hold up all the others.
    """
    blocked = False
    for status, cause, reason in _wanted(draft.world, context):
        held, victims = _make_room(draft, context, policy, status)
        if held is None and victims and blocked:
            held = Reason.NO_ROOM
        if held is not None:
            draft.say(status.model, Outcome.HOLD, held, _room_evidence(draft, context, status))
            # Nothing that others do or wait for would help one that cools down or never fits.
            blocked = blocked or held not in (Reason.COOL_DOWN, Reason.NEVER_FITS)
            continue
        waited_s = context.now_s - (status.wanted_since_s or context.now_s)
        evidence = (("waiting", status.waiting), ("waited_s", round(waited_s, 3)))
        draft.load(status, cause, reason, victims, evidence)
    return blocked


def _make_room(
    draft: _Draft, context: Context, policy: Policy, status: ModelStatus
) -> tuple[Reason | None, tuple[Victim, ...]]:
    """Whose unloading lets the load start, or why it cannot."""
    held = _hold_reason(draft, context, status, policy)
    if held is not None:
        return held, ()
    node_room = _room(draft, context, policy)
    victims = _victims(draft, context, policy, node_room, status.footprint_bytes or 0)
    if victims != () and node_room.draining:
        # What drains still counts as held: until it is gone more would be evicted than needed.
        return Reason.DRAINING, ()
    return (Reason.NO_ROOM, ()) if victims is None else (None, victims)


def _wanted(world: WorldSnapshot, context: Context) -> list[tuple[ModelStatus, LoadCause, Reason]]:
    """Cold models that must be resident: waited for in order of arrival, then by operators."""
    absent = [s for s in world.on_node(context.node) if s.residency in _ABSENT]
    waited = sorted(
        (s for s in absent if s.waiting), key=lambda s: (s.wanted_since_s or 0.0, s.model)
    )
    asked = [s for s in absent if not s.waiting and s.model in world.operator_loads]
    kept = [
        s
        for s in absent
        if not s.waiting
        and s.model not in world.operator_loads
        and (s.pinned or s.model in world.preloads)
    ]
    return (
        [(s, LoadCause.DEMAND, Reason.DEMAND) for s in waited]
        + [(s, LoadCause.OPERATOR, Reason.OPERATOR) for s in asked]
        + [(s, LoadCause.OPERATOR, Reason.PINNED if s.pinned else Reason.PRELOAD) for s in kept]
    )


def _hold_reason(
    draft: _Draft, context: Context, status: ModelStatus, policy: Policy
) -> Reason | None:
    cooldown_s = status.cooldown_until_s
    if cooldown_s is not None and context.now_s < cooldown_s:
        return Reason.COOL_DOWN
    node_room = _room(draft, context, policy)
    if node_room.never_fits(status.footprint_bytes or 0):
        return Reason.NEVER_FITS
    if node_room.loading >= context.config.parallel_loads:
        return Reason.LOAD_SLOTS_FULL
    return None


def _expire(draft: _Draft, context: Context, policy: Policy) -> None:
    idle = idle_models(draft.world, draft.world.on_node(context.node))
    for victim in policy.expired(context, idle):
        draft.unload(victim, context.node, UnloadCause.IDLE, "")


def _prefetch(draft: _Draft, context: Context, policy: Policy) -> None:
    """At most one model, only beside no other load, only if it beats its victims."""
    decided = {decision.subject for decision in draft.decisions}
    cold = tuple(
        status
        for status in draft.world.on_node(context.node)
        if status.residency is Residency.COLD and status.model not in decided
    )
    node_room = _room(draft, context, policy)
    if not cold or not context.config.prefetch or node_room.loading:
        return
    considered = policy.candidates(context, _judgeable(draft, context, cold))
    ranked = _ranked(draft, context, policy, for_prefetch=True)
    for candidate in considered:
        if candidate.gain <= policy.prefetch_loss(context, ()):
            break  # best first: the rest gains less still
        if _try_prefetch(draft, context, policy, node_room, candidate, ranked):
            return
    if considered:
        best = considered[0]
        draft.say(context.node, Outcome.HOLD, Reason.GAIN_TOO_SMALL, best.evidence)


def _judgeable(
    draft: _Draft, context: Context, cold: tuple[ModelStatus, ...]
) -> tuple[ModelStatus, ...]:
    """Those of which enough is known to load them ahead of demand; says so of the others."""
    judged = []
    for status in cold:
        forecast = context.forecasts.get(status.model)
        curve = None if forecast is None else forecast.next_use
        if status.kept_out:
            cold_s = (("cold_s", round(context.now_s - status.residency_since_s, 1)),)
            draft.say(status.model, Outcome.HOLD, Reason.OPERATOR, cold_s)
        elif status.footprint_bytes is None:
            seen = (("arrivals", status.arrivals),)
            draft.say(status.model, Outcome.ABSTAIN, Reason.UNKNOWN_FOOTPRINT, seen)
        elif curve is not None and curve.status is ForecastStatus.DEGRADED:
            scores = (("brier", curve.brier), ("floor_brier", curve.floor_brier))
            known = tuple((name, round(score, 4)) for name, score in scores if score is not None)
            draft.say(status.model, Outcome.ABSTAIN, Reason.FORECAST_DEGRADED, known)
        else:
            judged.append(status)
    if judged and not any(context.next_use(status.model) for status in judged):
        cold_models = (("cold_models", len(judged)),)
        draft.say(context.node, Outcome.ABSTAIN, Reason.NO_FORECAST, cold_models)
    return tuple(judged)


def _try_prefetch(
    draft: _Draft,
    context: Context,
    policy: Policy,
    node_room: Room,
    candidate: Candidate,
    ranked: tuple[Victim, ...],
) -> bool:
    status = draft.world.models[candidate.model]
    victims = choose(ranked, node_room, status.footprint_bytes or 0)
    if victims is None:
        return False
    price = policy.prefetch_loss(context, victims)
    if candidate.gain <= price:
        return False
    evidence = (*candidate.evidence, ("must_beat_s", round(price, 3)))
    draft.load(status, LoadCause.PREFETCH, Reason.FORECAST, victims, evidence)
    return True


def _victims(
    draft: _Draft, context: Context, policy: Policy, node_room: Room, wanted_bytes: int
) -> tuple[Victim, ...] | None:
    if not (node_room.missing_bytes(wanted_bytes) or node_room.missing_slots()):
        return ()
    return choose(_ranked(draft, context, policy, for_prefetch=False), node_room, wanted_bytes)


def _ranked(
    draft: _Draft, context: Context, policy: Policy, *, for_prefetch: bool
) -> tuple[Victim, ...]:
    """Idle models in the policy's order; a prefetch spares those that were just loaded."""
    idle = idle_models(draft.world, draft.world.on_node(context.node))
    if for_prefetch:
        settled_s = context.now_s - context.config.min_residency_s
        idle = tuple(status for status in idle if status.residency_since_s <= settled_s)
    return policy.victims(context, idle)


def _room(draft: _Draft, context: Context, policy: Policy) -> Room:
    return room(draft.world, context.node, context.config, model_limit=policy.model_limit(context))


def _room_evidence(
    draft: _Draft, context: Context, status: ModelStatus
) -> tuple[tuple[str, float | str], ...]:
    node_room = room(draft.world, context.node, context.config)
    usable = node_room.usable_bytes
    return (
        ("needs_mb", (status.footprint_bytes or 0) // _MIB),
        ("occupied_mb", node_room.occupied_bytes // _MIB),
        ("usable_mb", "unknown" if usable is None else usable // _MIB),
        ("loading", node_room.loading),
    )


def _next_tick_s(world: WorldSnapshot, config: PlannerConfig) -> float:
    """The next moment at which something may change without an event."""
    now_s = world.taken_at_s
    cooldowns = [
        status.cooldown_until_s
        for status in world.models.values()
        if status.waiting and status.cooldown_until_s is not None
        if status.cooldown_until_s > now_s
    ]
    return min([now_s + config.tick_s, *cooldowns])


def is_ordered(world: WorldSnapshot) -> bool:
    """Whether plans of this world are carried out."""
    return world.mode is Mode.ACTIVE
