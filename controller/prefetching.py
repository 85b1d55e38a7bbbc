"""Loading ahead of demand: at most one model, only beside no other load, only where it pays."""

from __future__ import annotations

from contracts.events import LoadCause
from contracts.forecasts import ForecastStatus
from contracts.plan import Outcome
from contracts.reasons import Reason
from contracts.world import ModelStatus, Residency, Strain
from controller.draft import Draft, Evidence
from controller.eviction import idle_models
from controller.policies.base import Candidate, Context, Policy, Swap
from controller.precedence import gives_to_prefetches
from controller.strains import strain_of
from controller.yielding import handed_over


def prefetch(draft: Draft, context: Context, policy: Policy) -> None:
    """Order the load that gains most for its time, if there is one that beats its victims."""
    if not context.config.prefetch:
        return
    if draft.room(context.node, context.config, policy.model_limit(context)).loading:
        return
    if handed_over(draft.world) is not None:
        draft.say(context.node, Outcome.HOLD, Reason.GPU_YIELDED)
        return
    strain = strain_of(context.world.nodes[context.node])
    if strain is not None:
        draft.say(context.node, Outcome.HOLD, strain.reason, _strain_evidence(strain))
        return
    cold = tuple(
        status
        for status in draft.on_node(context.node)
        if status.residency is Residency.COLD and status.model not in draft.said
    )
    considered = policy.candidates(context, _judgeable(draft, context, cold))
    best = _best(draft, context, policy, considered)
    if best is not None:
        candidate, swap = best
        evidence = (*candidate.evidence, ("must_beat", round(swap.must_beat, 4)))
        status = draft.world.models[candidate.model]
        draft.load(status, LoadCause.PREFETCH, Reason.FORECAST, swap.victims, evidence)
    elif considered:
        draft.say(context.node, Outcome.HOLD, Reason.GAIN_TOO_SMALL, considered[0].evidence)


def _strain_evidence(strain: Strain) -> Evidence:
    return (("level", round(strain.level, 3)), ("threshold", round(strain.threshold, 3)))


def _judgeable(
    draft: Draft, context: Context, cold: tuple[ModelStatus, ...]
) -> tuple[ModelStatus, ...]:
    """Those of which enough is known to load them ahead of demand; says so of the others."""
    judged, forecasts = [], context.forecasts
    known = False
    for status in cold:
        forecast = forecasts.get(status.model)
        curve = None if forecast is None else forecast.next_use
        if status.kept_out:
            cold_s = (("cold_s", round(context.now_s - status.residency_since_s, 1)),)
            draft.say(status.model, Outcome.HOLD, Reason.OPERATOR, cold_s)
        elif status.footprint_bytes is None:
            seen = (("arrivals", status.arrivals),)
            draft.say(status.model, Outcome.ABSTAIN, Reason.UNKNOWN_FOOTPRINT, seen)
        elif curve is not None and curve.status is ForecastStatus.DEGRADED:
            scores = (("brier", curve.brier), ("floor_brier", curve.floor_brier))
            told = tuple((name, round(score, 4)) for name, score in scores if score is not None)
            draft.say(status.model, Outcome.ABSTAIN, Reason.FORECAST_DEGRADED, told)
        else:
            judged.append(status)
            known = known or (curve is not None and curve.is_valid(context.now_s))
    if judged and not known:
        cold_models = (("cold_models", len(judged)),)
        draft.say(context.node, Outcome.ABSTAIN, Reason.NO_FORECAST, cold_models)
    return tuple(judged)


def _best(
    draft: Draft, context: Context, policy: Policy, considered: tuple[Candidate, ...]
) -> tuple[Candidate, Swap] | None:
    """The greatest surplus per second of load; the first in order among equals."""
    if not considered:
        return None
    settled_s = context.now_s - context.config.min_residency_s
    idle = tuple(
        status
        for status in idle_models(draft.world, draft.on_node(context.node))
        if status.residency_since_s <= settled_s
    )
    node_room = draft.room(context.node, context.config, policy.model_limit(context))
    best = None
    for candidate in considered:
        wanted = draft.world.models[candidate.model]
        gives = gives_to_prefetches(draft.world, wanted, idle, context.config.groups)
        swap = policy.swap(context, candidate, gives, node_room)
        if swap is not None and (best is None or swap.surplus_per_s > best[1].surplus_per_s):
            best = candidate, swap
    return best
