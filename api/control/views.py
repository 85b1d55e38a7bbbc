"""From the board and contract records to what people see. No clock, no I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from api.control import comparing, schemas
from api.control.board import Board
from api.control.explaining import takes_budget
from api.control.history import HistoryRow
from api.control.memory_views import memory_views
from api.control.node_views import fact_views, instance_view
from api.control.phrases import sentence
from api.control.turning import what_would_change
from contracts.forecasts import (
    QUANTILE_LEVELS,
    Forecast,
    HorizonForecast,
    ModelForecast,
    NextUse,
)
from contracts.ids import ModelId
from contracts.plan import Decision
from contracts.reasons import explain
from contracts.world import (
    ModelStatus,
    NodeStatus,
    QueueStatus,
    Residency,
    Sla,
    tier_of,
)

NEXT_USE_DELAYS_S: tuple[float, ...] = (5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
"""Delays that next-use probabilities are shown for."""

OURS = ("headstart",)
"""Names under which a baseline holds our own figures, counted beside those of the others."""

PREFERRED_BASELINES = ("localai-lru", "lru")
"""What the headline compares with, the first that there is."""


def model_view(board: Board, status: ModelStatus, now_s: float) -> schemas.ModelView:
    """One model of the world with what people set for it."""
    sla = board.sla(status.model)
    attainment = board.tally.attainment(now_s, status.model)
    warmth = None if board.world is None else board.world.warmth.get(status.model)
    use = None if board.world is None else board.world.scheduled.get(status.model)
    node = None if board.world is None else board.world.nodes.get(status.node)
    return schemas.ModelView(
        id=status.model,
        node=status.node,
        residency=status.residency,
        residency_since_s=status.residency_since_s,
        in_flight=status.in_flight,
        waiting=status.waiting,
        arrivals=status.arrivals,
        last_used_at_s=status.last_used_at_s,
        pinned=board.is_pinned(status),
        footprint_bytes=status.footprint_bytes,
        footprint_source=status.footprint_source,
        footprint_places={str(place): size for place, size in status.split.items()},
        needs_more_than_bytes=status.out_of_memory_bytes,
        occupied_bytes=status.occupied_bytes,
        load_s=finite(status.load_s),
        cooldown_until_s=status.cooldown_until_s,
        load_cause=status.load_cause,
        used_since_load=status.used_since_load,
        aliases=sorted(name for name, model in board.aliases.items() if model == status.model),
        target_s=board.target_s(status.model),
        attainment_ratio=attainment.ratio,
        judged=attainment.judged,
        sla=sla_view(board, sla, now_s) if sla is not None else None,
        tier=tier_of(status, warmth),
        weights_bytes=None if warmth is None else warmth.weights_bytes,
        cached_ratio=None if warmth is None else warmth.cached_ratio,
        group=status.group,
        on_host=node is not None and not takes_budget(status, node),
        scheduled_at_s=None if use is None else use.starts_at_s,
    )


def sla_view(board: Board, sla: Sla, now_s: float) -> schemas.SlaView:
    """A target and how it was met."""
    attainment = board.tally.attainment(now_s, sla.model)
    return schemas.SlaView(
        id=sla.model,
        model=sla.model,
        target_s=sla.target_s,
        percentile=sla.percentile,
        priority=sla.priority,
        weight=sla.weight,
        source="set" if sla.model in board.slas else "configured",
        attainment_ratio=attainment.ratio,
        judged=attainment.judged,
    )


def forecast_view(forecast: ModelForecast, now_s: float) -> schemas.ForecastView:
    """All that is forecast for one model, as seen from now."""
    return schemas.ForecastView(
        id=forecast.model,
        model=forecast.model,
        next_use=_next_use_view(forecast.next_use, now_s) if forecast.next_use else None,
        signals=[_signal_view(signal, now_s) for signal in forecast.signals],
    )


def decision_view(decision: Decision, cursor: str | None = None) -> schemas.DecisionView:
    """A decision with its reason in words."""
    return schemas.DecisionView(
        id=decision.decision_id or cursor or "",
        cursor=cursor,
        made_at_s=decision.made_at_s,
        policy=decision.policy,
        subject=decision.subject,
        outcome=decision.outcome,
        reason=decision.reason,
        sentence=sentence(decision),
        explanation=explain(decision.reason),
        evidence=[
            schemas.EvidenceView(
                name=name, value=finite(value) if isinstance(value, float) else value
            )
            for name, value in decision.evidence
        ],
        would_change=list(what_would_change(decision)),
    )


def node_view(board: Board, node: NodeStatus) -> schemas.NodeView:
    """One node and what our models take on it."""
    models = board.world.on_node(node.node) if board.world is not None else ()
    return schemas.NodeView(
        id=node.node,
        alive=node.alive,
        seen_at_s=node.seen_at_s,
        budget_bytes=node.budget_bytes,
        memory_total_bytes=node.memory_total_bytes,
        memory_used_bytes=node.memory_used_bytes,
        used_by_others_bytes=node.used_by_others_bytes,
        occupied_bytes=sum(one.occupied_bytes for one in models if takes_budget(one, node)),
        model_limit=node.model_limit,
        resident_models=sum(status.residency is Residency.HOT for status in models),
        instance=None if board.world is None else instance_view(board.world, node.node),
        **fact_views(node),
        **memory_views(node, models),
    )


def queue_view(queue: QueueStatus) -> schemas.QueueView:
    """One class's queue."""
    return schemas.QueueView(
        id=queue.priority.value,
        waiting=queue.waiting,
        capacity=queue.capacity,
        oldest_wait_s=queue.oldest_wait_s,
    )


def comparison_views(board: Board) -> list[schemas.ComparisonView]:
    """Each policy that was followed beside ours, in the shadow or in turns, against ours."""
    return [
        _comparison_view(board, name)
        for name in sorted(board.baselines)
        if name not in OURS and comparing.is_comparison(name, board.baselines)
    ]


def policy_views(board: Board) -> list[schemas.PolicyView]:
    """All policies there are, and which is in use."""
    configured, deciding = comparing.in_use(board.baselines)
    views = []
    for name, summary in sorted(comparing.known_policies(board.baselines).items()):
        figures = board.baselines.get(comparing.SHADOW + name, {})
        arrivals, late = figures.get("arrivals"), figures.get("late")
        views.append(
            schemas.PolicyView(
                id=name,
                summary=summary,
                configured=name == configured,
                deciding=name == deciding,
                late_ratio=late / arrivals if late is not None and arrivals else None,
                loads=comparing.figure(figures, "loads"),
            )
        )
    return views


def headline_comparison(board: Board) -> schemas.ComparisonView | None:
    """The comparison that the headline shows."""
    known = [*PREFERRED_BASELINES, *sorted(board.baselines)]
    beside = (
        name
        for name in known
        if name in board.baselines
        and name not in OURS
        and name != comparing.POLICIES_IN_USE
        and comparing.method_of(name)[0] == "beside"
    )
    policy = next(beside, None)
    return _comparison_view(board, policy) if policy is not None else None


def summary_view(
    board: Board, now_s: float, *, time_scale: float, stale_after_s: float
) -> schemas.SummaryView:
    """The headline figures."""
    world, tally = board.world, board.tally
    stale_reason = board.stale_reason(now_s, stale_after_s=stale_after_s)
    comparison = headline_comparison(board)
    attainment = tally.attainment(now_s)
    models = tuple(world.models.values()) if world is not None else None
    return schemas.SummaryView(
        now_s=now_s,
        time_scale=time_scale,
        mode=world.mode if world is not None else None,
        mode_wanted=board.mode_wanted,
        stale=stale_reason is not None,
        stale_reason=stale_reason,
        snapshot_age_s=board.snapshot_age_s(now_s),
        forecast_age_s=board.forecast_age_s(now_s),
        requests=tally.received,
        counting_since_s=tally.since_s,
        cold_requests=tally.cold,
        failed_requests=tally.failed,
        cold_ratio=tally.cold / tally.dispatched if tally.dispatched else None,
        comparison=comparison,
        prefetches=_prefetch_view(board),
        attainment_ratio=attainment.ratio,
        judged=attainment.judged,
        models_hot=_total(models, lambda model: int(model.residency is Residency.HOT)),
        models_known=_total(models, lambda _: 1),
        in_flight=_total(models, lambda model: model.in_flight),
        waiting=_total(models, lambda model: model.waiting),
    )


def history_view(
    model: ModelId, rows: tuple[HistoryRow, ...], *, horizon_s: float, now_s: float
) -> schemas.HistoryView:
    """Forecast against what came."""
    return schemas.HistoryView(
        model=model,
        horizon_s=horizon_s,
        now_s=now_s,
        data=[
            schemas.BucketView(
                start_s=row.start_s,
                end_s=row.end_s,
                count=row.count,
                window_count=row.window_count,
                quantiles=_quantile_views(row.quantiles) if row.quantiles is not None else None,
            )
            for row in rows
        ],
    )


def cold_starts(figures: Mapping[str, float]) -> float | None:
    """The requests among a policy's figures that met a cold model; None: it is not told."""
    return finite(figures.get("cold_starts"))


def our_cold_starts(board: Board, arrivals: float | None) -> float | None:
    """Ours among the same number of arrivals that a baseline counted.

    It is our share of cold requests times their arrivals, since a baseline may leave out
    requests that it cannot judge. The controller counts ours beside theirs; where it does not,
    the share is that of the event log, which may go back further, or less far.
    """
    figures = next((board.baselines[name] for name in OURS if name in board.baselines), None)
    if figures is None:
        cold, of = float(board.tally.cold), float(board.tally.dispatched)
    else:
        cold, of = figures.get("cold_starts", math.nan), figures.get("arrivals", 0.0)
    if arrivals is None or not of or not math.isfinite(cold):
        return None
    return float(round(arrivals * cold / of))


def finite(value: float | None) -> float | None:
    """The number, or None for what JSON cannot say."""
    return value if value is not None and math.isfinite(value) else None


def _comparison_view(board: Board, name: str) -> schemas.ComparisonView:
    figures = board.baselines[name]
    method, policy = comparing.method_of(name)
    configured = comparing.in_use(board.baselines)[0] or OURS[0]
    arrivals = finite(figures.get("arrivals"))
    theirs = cold_starts(figures)
    if method == "shadow":  # a ghost is compared with our ghost, not with what really was
        ours = cold_starts(board.baselines.get(comparing.SHADOW + configured, {}))
    else:
        ours = our_cold_starts(board, arrivals) if method == "beside" else None
    return schemas.ComparisonView(
        id=name,
        policy=policy,
        method=method,
        sentence=(
            comparing.beside_sentence(configured, policy, arrivals, ours, theirs)
            if method == "beside"
            else comparing.sentence(configured, policy, method, figures)
        ),
        our_late_ratio=comparing.figure(figures, "our_late_ratio"),
        late_ratio=comparing.figure(figures, "late_ratio"),
        difference=comparing.figure(figures, "difference"),
        low=comparing.figure(figures, "low"),
        high=comparing.figure(figures, "high"),
        sure=comparing.figure(figures, "sure"),
        figures={name: value for name, value in figures.items() if math.isfinite(value)},
        arrivals=arrivals,
        cold_starts=theirs,
        our_cold_starts=ours,
        avoided_cold_starts=theirs - ours if theirs is not None and ours is not None else None,
    )


def _next_use_view(next_use: NextUse, now_s: float) -> schemas.NextUseView:
    return schemas.NextUseView(
        made_at_s=next_use.made_at_s,
        expires_at_s=next_use.expires_at_s,
        valid=next_use.is_valid(now_s),
        last_arrival_at_s=next_use.last_arrival_at_s,
        probabilities=[
            schemas.ProbabilityView(
                within_s=delay_s, probability=next_use.probability_between(now_s, 0.0, delay_s)
            )
            for delay_s in NEXT_USE_DELAYS_S
        ],
        method=next_use.method,
        status=next_use.status,
        brier=finite(next_use.brier),
        floor_brier=finite(next_use.floor_brier),
    )


def _signal_view(signal: Forecast, now_s: float) -> schemas.SignalView:
    return schemas.SignalView(
        signal=signal.signal.value,
        made_at_s=signal.made_at_s,
        expires_at_s=signal.expires_at_s,
        expired=now_s >= signal.expires_at_s,
        horizons=[_horizon_view(horizon) for horizon in signal.horizons],
    )


def _horizon_view(horizon: HorizonForecast) -> schemas.HorizonView:
    loss, floor = finite(horizon.loss), finite(horizon.floor_loss)
    return schemas.HorizonView(
        horizon_s=horizon.horizon_s,
        mean=horizon.mean,
        quantiles=_quantile_views(horizon.quantiles),
        method=horizon.method,
        status=horizon.status,
        loss=loss,
        floor_loss=floor,
        skill_ratio=1.0 - loss / floor if loss is not None and floor else None,
        coverage_ratio=finite(horizon.coverage_ratio),
    )


def _quantile_views(quantiles: tuple[float, ...]) -> list[schemas.QuantileView]:
    return [
        schemas.QuantileView(level=level, value=value)
        for level, value in zip(QUANTILE_LEVELS, quantiles, strict=False)
    ]


def _prefetch_view(board: Board) -> schemas.PrefetchView | None:
    if board.world is None:
        return None
    tally = board.world.prefetches
    return schemas.PrefetchView(started=tally.started, used=tally.used, wasted=tally.wasted)


def _total(
    models: tuple[ModelStatus, ...] | None, measure: Callable[[ModelStatus], int]
) -> int | None:
    return sum(map(measure, models)) if models is not None else None
