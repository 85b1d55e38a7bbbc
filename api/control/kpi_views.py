"""From the ledger of key figures to what people see. No clock, no I/O."""

from __future__ import annotations

from api.control import kpi_schemas as schemas
from api.control.board import Board
from api.control.kpis.budget import Budget
from api.control.kpis.holding import COARSE_S, FINE_S, Held
from api.control.kpis.loads import Loads
from api.control.kpis.panels import MINUTE_S, PANELS, QUARTER_S
from api.control.kpis.rings import Window
from api.control.kpis.spread import Spread
from api.control.kpis.traffic import Traffic, summed
from api.control.views import headline_comparison
from contracts.events import PriorityClass
from contracts.forecasts import Signal
from contracts.ids import ModelId
from contracts.world import PlanningTally

_GB = 1000**3
_J_PER_KWH = 3.6e6

DEFAULT_PERCENTILE = 95.0
"""Of models without a target of their own."""


def kpi_view(board: Board, window: Window, now_s: float, model: ModelId | None) -> schemas.KpiView:
    """All key figures; of one model alone where ``model`` is given."""
    book, comparison = board.kpis, headline_comparison(board)
    classes = {one: book.traffic.of(window, now_s, priority=one) for one in PriorityClass}
    total = summed(classes.values())
    names = book.traffic.models() if model is None else [model]
    planning = board.world.planning if board.world is not None else None
    return schemas.KpiView(
        window=window.value,
        now_s=now_s,
        counting_since_s=board.tally.since_s,
        total=_traffic(total, window, violations=True),
        by_class={
            priority.value: _traffic(one, window, violations=True)
            for priority, one in classes.items()
        },
        loads=_loads(book.loads.of(window, now_s), window),
        cost=_cost(
            book.holding.held_by_all(now_s, window.length_s),
            total,
            book.panels.energy_of(now_s, window.length_s),
        ),
        deciding=_deciding(planning),
        cold_starts_avoided=comparison.avoided_cold_starts if comparison else None,
        compared_with=comparison.policy if comparison else None,
        models=[model_kpis(board, name, window, now_s) for name in names],
    )


def model_kpis(board: Board, model: ModelId, window: Window, now_s: float) -> schemas.ModelKpis:
    """Those of one model."""
    book = board.kpis
    by_class = {
        priority.value: found
        for priority in PriorityClass
        if (found := book.traffic.of(window, now_s, model=model, priority=priority)).ended
    }
    traffic = summed(by_class.values())
    return schemas.ModelKpis(
        model=model,
        traffic=_traffic(traffic, window),
        by_class={name: _traffic(one, window) for name, one in by_class.items()},
        loads=_loads(book.loads.of(window, now_s, model), window),
        cost=_cost(book.holding.held(model, now_s, window.length_s), traffic, None),
        budget=budget_view(board, model, now_s),
    )


def model_budget(board: Board, model: ModelId, now_s: float) -> Budget:
    """The error budget of one model, with what is forecast for it."""
    sla = board.sla(model)
    percentile = sla.percentile if sla is not None else DEFAULT_PERCENTILE
    return board.kpis.budget_of(
        model, percentile, now_s, expected_1h=_expected_1h(board, model, now_s)
    )


def budget_view(board: Board, model: ModelId, now_s: float) -> schemas.BudgetView:
    """As ``model_budget``, for people."""
    found, sla = model_budget(board, model, now_s), board.sla(model)
    return schemas.BudgetView(
        percentile=sla.percentile if sla is not None else DEFAULT_PERCENTILE,
        target_s=board.target_s(model),
        allowed_ratio=found.allowed_ratio,
        judged=found.judged,
        missed=found.missed,
        remaining_ratio=found.remaining_ratio,
        burn_1h=found.burn_1h,
        burn_6h=found.burn_6h,
        exhausted_in_s=found.exhausted_in_s,
        expected_ratio=found.expected_ratio,
        breach=found.breach,
    )


def panels_view(board: Board, window: Window, now_s: float) -> schemas.PanelsView:
    """The six panels; an hour by the minute, a day and a week by the quarter of an hour."""
    step_s = MINUTE_S if window is Window.HOUR else QUARTER_S
    count = round(window.length_s / step_s)
    panels, start_s = [], now_s - window.length_s
    for panel in PANELS:
        lines = []
        for name in panel.series:
            points = board.kpis.panels.series(name, now_s, step_s=step_s, count=count)
            start_s = points[0][0]
            values = [None if value is None else round(value, 4) for _, value in points]
            # The bucket that has just begun may hold nothing yet.
            latest = next((value for value in reversed(values[-3:]) if value is not None), None)
            lines.append(schemas.PanelSeries(name=name, values=values, latest=latest))
        panels.append(
            schemas.PanelView(
                id=panel.panel_id,
                title=panel.title,
                unit=panel.unit,
                threshold=panel.threshold,
                series=lines,
            )
        )
    return schemas.PanelsView(window=window.value, start_s=start_s, step_s=step_s, data=panels)


def heat_view(board: Board, window: Window, now_s: float) -> schemas.HeatView:
    """Every model over time: an hour by five minutes, a day by fifteen, a week by the hour."""
    step_s = {Window.HOUR: FINE_S, Window.DAY: 3 * FINE_S, Window.WEEK: COARSE_S}[window]
    count = round(window.length_s / step_s)
    first = int(now_s // step_s) - count + 1
    return schemas.HeatView(
        window=window.value,
        start_s=first * step_s,
        step_s=step_s,
        data=[
            schemas.HeatRow(
                model=row.model,
                arrivals=list(row.arrivals),
                resident_ratio=list(row.resident_ratio),
            )
            for row in board.kpis.holding.strip(now_s, step_s=step_s, count=count)
        ],
    )


def spread_view(spread: Spread) -> schemas.SpreadView:
    """Count, mean and percentiles."""
    return schemas.SpreadView(
        count=spread.count,
        mean_s=spread.mean,
        p50_s=spread.quantile(0.5),
        p90_s=spread.quantile(0.9),
        p95_s=spread.quantile(0.95),
        p99_s=spread.quantile(0.99),
        greatest_s=spread.greatest if spread.count else None,
    )


def _traffic(traffic: Traffic, window: Window, *, violations: bool = False) -> schemas.TrafficView:
    told = traffic.token_requests > 0
    return schemas.TrafficView(
        requests=traffic.ended,
        requests_per_s=traffic.ended / window.length_s,
        completed=traffic.completed,
        failed=traffic.failed,
        refused=traffic.refused,
        cancelled=traffic.cancelled,
        success_ratio=traffic.success_ratio,
        cold=traffic.cold,
        cold_ratio=traffic.cold / traffic.dispatched if traffic.dispatched else None,
        judged=traffic.judged,
        met=traffic.met,
        attainment_ratio=traffic.attainment_ratio,
        apdex=traffic.apdex,
        satisfaction_ratio=traffic.satisfaction_ratio,
        feedback=traffic.scored,
        input_tokens=traffic.input_tokens if told else None,
        output_tokens=traffic.output_tokens if told else None,
        violations=traffic.violations if violations else None,
        aged=traffic.aged if violations else None,
        wait=spread_view(traffic.wait),
        first_content=spread_view(traffic.ttft),
        duration=spread_view(traffic.duration),
    )


def _loads(loads: Loads, window: Window) -> schemas.LoadsView:
    hours = window.length_s / 3600.0
    unloads = loads.unloads.total()
    return schemas.LoadsView(
        loads=loads.loaded,
        loads_per_h=loads.loaded / hours,
        by_cause={cause.value: count for cause, count in sorted(loads.by_cause.items())},
        failed=loads.failed,
        unloads=unloads,
        unloads_per_h=unloads / hours,
        unloads_by_cause={cause.value: count for cause, count in sorted(loads.unloads.items())},
        reloads=loads.reloads,
        took=spread_view(loads.took),
        prefetches_used=loads.used,
        prefetches_wasted=loads.wasted,
        precision=loads.precision,
        recall=loads.recall,
    )


def _cost(held: Held, traffic: Traffic, energy_j: float | None) -> schemas.CostView:
    gb_hours = held.byte_s / _GB / 3600.0
    gpu_s = held.gpu_s if held.gpu_s > 0.0 else None
    tokens = None
    if traffic.token_requests:
        tokens = traffic.input_tokens + traffic.output_tokens
    return schemas.CostView(
        resident_s=held.resident_s,
        gpu_seconds=gpu_s,
        gb_hours=gb_hours,
        in_flight_mean=_per(traffic.service_s, held.resident_s),
        tokens_per_gpu_second=_per(tokens, gpu_s),
        requests_per_gpu_second=_per(traffic.completed, gpu_s),
        tokens_per_gb_hour=_per(tokens, gb_hours),
        requests_per_gb_hour=_per(traffic.completed, gb_hours),
        energy_j=energy_j,
        tokens_per_kwh=_per(tokens, energy_j / _J_PER_KWH if energy_j else None),
    )


def _per(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def _deciding(planning: PlanningTally | None) -> schemas.DecidingView | None:
    if planning is None:
        return None
    return schemas.DecidingView(
        runs=planning.runs,
        mean_s=planning.total_s / planning.runs if planning.runs else None,
        p95_s=planning.recent_p95_s,
        greatest_s=planning.recent_max_s,
    )


def _expected_1h(board: Board, model: ModelId, now_s: float) -> float | None:
    forecast = board.forecasts.get(model)
    arrivals = forecast.signal(Signal.ARRIVALS) if forecast is not None else None
    if arrivals is None or now_s >= arrivals.expires_at_s:
        return None
    return next((one.mean for one in arrivals.horizons if one.horizon_s == 3600.0), None)
