"""Figures for Prometheus, read off the board at each scrape.

Nothing is set between scrapes, so a model that is gone leaves no series behind. Labels are
bounded: the busiest ``MAX_MODELS`` models have series of their own, the rest are counted in
``headstart_metrics_omitted_models``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS_TYPE
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_latest
from prometheus_client.registry import Collector

from api.control.board import Board
from api.control.feed import EventFeed
from api.control.kpi_metrics import kpi_families
from api.control.machine_metrics import machines
from api.control.memory_metrics import memory_metrics
from api.control.node_metrics import instance_metrics, node_fact_metrics
from api.control.predictor_metrics import predictor_metrics
from api.control.scaling_metrics import fresh, scaling_metrics, worker_scalings
from api.control.tally import Attainment
from api.control.views import cold_starts
from contracts.forecasts import ModelForecast, Signal
from contracts.ids import ModelId
from contracts.ports import Clock, EventLog
from contracts.predictors import PredictorBeat
from contracts.scaling import Scaling
from contracts.world import Mode, ModelStatus, Residency, WorldSnapshot

MAX_MODELS = 200

CONTENT_TYPE = CONTENT_TYPE_LATEST
OPENMETRICS_CONTENT_TYPE = OPENMETRICS_TYPE

RequestLabels = tuple[str, str, str]
"""Method, route template, status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All that one scrape tells, copied off the board so that a thread may render it."""

    store_up: bool
    snapshot_age_s: float | None
    forecast_age_s: float | None
    world: WorldSnapshot | None
    shown: frozenset[ModelId]
    attainment: Attainment
    model_attainment: Mapping[ModelId, Attainment]
    forecasts: tuple[ModelForecast, ...]
    requests: int
    cold_requests: int
    failed_requests: int
    demand_loads: int | None
    baseline_cold_starts: Mapping[str, float]
    decisions: Mapping[tuple[str, str], int]
    listeners: int
    listeners_dropped: int
    listeners_refused: int
    answers: Mapping[RequestLabels, int]
    forgotten: Mapping[str, int]
    log_lags_s: Mapping[str, float]
    kpis: tuple[Metric, ...]
    scalings: tuple[Scaling, ...] = ()
    predictors: tuple[PredictorBeat, ...] = ()


class ControlMetrics:
    """Takes readings and renders them. ``count`` is told of every answered HTTP request."""

    def __init__(
        self,
        board: Board,
        feed: EventFeed,
        events: EventLog,
        clock: Clock,
        *,
        max_workers: int = 1,
        forgotten_guessers: Callable[[], int] = int,
    ) -> None:
        self._board = board
        self._forgotten_guessers = forgotten_guessers
        self._max_workers = max_workers
        self._events = events
        self._feed = feed
        self._clock = clock
        self._answers: Counter[RequestLabels] = Counter()

    def count(self, method: str, route: str, status: int) -> None:
        """One HTTP request was answered; ``route`` is the template, never the path."""
        self._answers[method, route, str(status)] += 1

    def read(self) -> Reading:
        """A reading; call it on the event loop."""
        board, now_s = self._board, self._clock.now_s()
        shown = _busiest(board.world)
        baselines = {
            policy: value
            for policy, figures in board.baselines.items()
            if (value := cold_starts(figures)) is not None
        }
        return Reading(
            store_up=board.store_fault is None,
            snapshot_age_s=board.snapshot_age_s(now_s),
            forecast_age_s=board.forecast_age_s(now_s),
            world=board.world,
            shown=shown,
            attainment=board.tally.attainment(now_s),
            model_attainment={model: board.tally.attainment(now_s, model) for model in shown},
            forecasts=tuple(one for model, one in board.forecasts.items() if model in shown),
            requests=board.tally.received,
            cold_requests=board.tally.cold,
            failed_requests=board.tally.failed,
            demand_loads=board.world.demand_loads if board.world is not None else None,
            baseline_cold_starts=baselines,
            decisions=dict(board.decisions),
            listeners=self._feed.listeners,
            listeners_dropped=self._feed.dropped,
            listeners_refused=self._feed.refused,
            answers=dict(self._answers),
            log_lags_s=board.log_lags_s(now_s),
            forgotten={
                "unreadable_events": self._events.skipped,
                "histories": board.history.forgotten,
                "requests": board.tally.forgotten,
                "forecasts": board.forgotten_forecasts,
                "guessers": self._forgotten_guessers(),
                **board.kpis.forgotten(),
            },
            kpis=kpi_families(board, shown, now_s),
            scalings=self._scalings(now_s),
            predictors=board.living_predictors(now_s),
        )

    def _scalings(self, now_s: float) -> tuple[Scaling, ...]:
        """What others may scale by; of jobs nothing is known while the store is away."""
        board = self._board
        jobs = board.jobs if board.store_fault is None else {}
        return (
            *fresh(board.scalings, now_s),
            *worker_scalings(jobs, board.workers, max_workers=self._max_workers, now_s=now_s),
        )


def render(reading: Reading, *, openmetrics: bool = False) -> bytes:
    """Prometheus' text format, or OpenMetrics; pure, so that a thread may do it."""
    registry = CollectorRegistry()
    registry.register(_ReadingCollector(reading))
    if openmetrics:
        text: bytes = openmetrics_latest(registry)  # type: ignore[no-untyped-call]  # the library's
        return text
    return generate_latest(registry)


class _ReadingCollector(Collector):
    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def collect(self) -> Iterable[Metric]:
        reading = self._reading
        yield from _service(reading)
        yield from _traffic(reading)
        yield from _forecast_scores(reading)
        yield from reading.kpis
        yield from scaling_metrics(reading.scalings)
        yield from predictor_metrics(reading.predictors)
        if reading.world is not None:
            yield from _world(reading.world)
            yield from machines(reading.world)
            yield from _models(reading, reading.world)


def _service(reading: Reading) -> Iterator[Metric]:
    yield _gauge("store_up", "Whether the store (Redis) answered last.", reading.store_up)
    yield _gauge(
        "snapshot_age_seconds", "Age of the controller's snapshot.", reading.snapshot_age_s
    )
    yield _gauge("forecast_age_seconds", "Age of the newest forecast.", reading.forecast_age_s)
    yield _by(
        "event_log_lag_seconds",
        "How far a reader of the event log is behind its end.",
        "reader",
        sorted(reading.log_lags_s.items()),
    )
    yield _gauge("event_listeners", "Open streams of /v1/events.", reading.listeners)
    yield _counter("event_listeners_dropped", "Streams ended for lag.", reading.listeners_dropped)
    yield _counter("event_listeners_refused", "Streams over the limit.", reading.listeners_refused)
    answers = CounterMetricFamily(
        "headstart_control_requests", "Answers of this API.", labels=["method", "route", "status"]
    )
    for labels, count in sorted(reading.answers.items()):
        answers.add_metric(labels, count)
    yield answers
    forgotten = CounterMetricFamily(
        "headstart_control_forgotten", "Records let go at a bound.", labels=["what"]
    )
    for what, count in reading.forgotten.items():
        forgotten.add_metric([what], count)
    yield forgotten


def _traffic(reading: Reading) -> Iterator[Metric]:
    yield _counter("requests", "Inference requests seen in the event log.", reading.requests)
    yield _counter("cold_starts", "Requests that met a cold model.", reading.cold_requests)
    yield _counter("failed_requests", "Requests that ended in an error.", reading.failed_requests)
    if reading.demand_loads is not None:
        yield _counter("demand_loads", "Loads that a waiting request caused.", reading.demand_loads)
    baselines = GaugeMetricFamily(
        "headstart_baseline_cold_starts",
        "Requests that would have met a cold model under another policy.",
        labels=["policy"],
    )
    for policy, value in sorted(reading.baseline_cold_starts.items()):
        baselines.add_metric([policy], value)
    yield baselines
    decisions = CounterMetricFamily(
        "headstart_decisions", "Decisions since this process started.", labels=["reason", "outcome"]
    )
    for labels, count in sorted(reading.decisions.items()):
        decisions.add_metric(labels, count)
    yield decisions
    yield _gauge(
        "sla_attainment_ratio",
        "Share of requests of the last hour that met their target.",
        reading.attainment.ratio,
    )


def _forecast_scores(reading: Reading) -> Iterator[Metric]:
    labels = ["model", "horizon"]
    loss = GaugeMetricFamily(
        "headstart_forecast_pinball_loss_requests", "Mean pinball loss.", labels=labels
    )
    floor = GaugeMetricFamily(
        "headstart_forecast_floor_pinball_loss_requests",
        "Mean pinball loss of the naive floor.",
        labels=labels,
    )
    for forecast in reading.forecasts:
        arrivals = forecast.signal(Signal.ARRIVALS)
        for horizon in arrivals.horizons if arrivals is not None else ():
            values = [forecast.model, f"{horizon.horizon_s:.0f}s"]
            if horizon.loss is not None:
                loss.add_metric(values, horizon.loss)
            if horizon.floor_loss is not None:
                floor.add_metric(values, horizon.floor_loss)
    yield loss
    yield floor


def _world(world: WorldSnapshot) -> Iterator[Metric]:
    mode = GaugeMetricFamily("headstart_mode_info", "1 for the mode in force.", labels=["mode"])
    for each in Mode:
        mode.add_metric([each.value], float(world.mode is each))
    yield mode
    prefetches = CounterMetricFamily(
        "headstart_prefetches", "Prefetches started, used and wasted.", labels=["result"]
    )
    tally = world.prefetches
    for result, count in (
        ("started", tally.started),
        ("used", tally.used),
        ("wasted", tally.wasted),
    ):
        prefetches.add_metric([result], count)
    yield prefetches
    waiting = GaugeMetricFamily(
        "headstart_queue_waiting_requests", "Requests that wait for admission.", labels=["class"]
    )
    for queue in world.queues:
        waiting.add_metric([queue.priority.value], queue.waiting)
    yield waiting
    yield from _nodes(world)
    yield from memory_metrics(world)
    yield from node_fact_metrics(world)
    yield from instance_metrics(world)


def _nodes(world: WorldSnapshot) -> Iterator[Metric]:
    nodes = [world.nodes[name] for name in sorted(world.nodes)]
    yield _by(
        "node_up", "Whether the node answered.", "node", [(n.node, float(n.alive)) for n in nodes]
    )
    yield _by(
        "node_memory_budget_bytes",
        "Memory that our orders may fill.",
        "node",
        [(n.node, n.budget_bytes) for n in nodes],
    )
    yield _by(
        "node_memory_used_bytes",
        "Memory in use, by us and by others.",
        "node",
        [(n.node, n.memory_used_bytes) for n in nodes],
    )
    yield _by(
        "node_memory_total_bytes",
        "Memory of the node.",
        "node",
        [(n.node, n.memory_total_bytes) for n in nodes],
    )


def _models(reading: Reading, world: WorldSnapshot) -> Iterator[Metric]:
    models = [world.models[name] for name in sorted(reading.shown)]
    yield _gauge(
        "metrics_omitted_models", "Models without series.", len(world.models) - len(models)
    )
    residency = GaugeMetricFamily(
        "headstart_model_residency",
        "1 for the state that a model is in.",
        labels=["model", "state"],
    )
    for model in models:
        for state in Residency:
            residency.add_metric([model.model, state.value], float(model.residency is state))
    yield residency
    yield _by(
        "model_memory_bytes",
        "Memory that the model takes now.",
        "model",
        [(m.model, m.occupied_bytes) for m in models],
    )
    yield _by(
        "model_in_flight_requests",
        "Requests that LocalAI works on.",
        "model",
        [(m.model, m.in_flight) for m in models],
    )
    yield _by(
        "model_waiting_requests",
        "Requests that wait for the load.",
        "model",
        [(m.model, m.waiting) for m in models],
    )
    yield _by(
        "model_load_seconds", "Expected load time.", "model", [(m.model, m.load_s) for m in models]
    )
    yield _by(
        "model_sla_attainment_ratio",
        "Share of the model's requests of the last hour that met its target.",
        "model",
        [(m.model, reading.model_attainment[m.model].ratio) for m in models],
    )


def _busiest(world: WorldSnapshot | None) -> frozenset[ModelId]:
    if world is None:
        return frozenset()

    def busy(status: ModelStatus) -> tuple[bool, int, str]:
        return (status.occupied_bytes > 0, status.arrivals, status.model)

    ranked = sorted(world.models.values(), key=busy, reverse=True)
    return frozenset(status.model for status in ranked[:MAX_MODELS])


def _gauge(name: str, text: str, value: float | None) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"headstart_{name}", text)
    if value is not None:
        family.add_metric([], float(value))
    return family


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"headstart_{name}", text, value=value)


def _by(
    name: str, text: str, label: str, values: Iterable[tuple[str, float | None]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"headstart_{name}", text, labels=[label])
    for labelled, value in values:
        if value is not None:
            family.add_metric([labelled], float(value))
    return family
