"""Key figures for Prometheus: ready families, read off the board at each scrape.

Counters count what happens while this process runs; gauges are of the last hour, of the week
for error budgets. Series of models are those of ``shown``, so labels are bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from api.control.board import Board
from api.control.kpi_views import model_budget
from api.control.kpis.counters import LOAD_BOUNDS_S, LiveCounters
from api.control.kpis.loads import Loads
from api.control.kpis.rings import Window
from api.control.kpis.traffic import Traffic, summed
from api.control.views import headline_comparison
from contracts.events import PriorityClass
from contracts.ids import ModelId, NodeId
from contracts.world import WorldSnapshot

_HOUR_S = Window.HOUR.length_s


def kpi_families(board: Board, shown: Iterable[ModelId], now_s: float) -> tuple[Metric, ...]:
    """All of them; call it on the event loop, render them wherever."""
    classes = {
        one: board.kpis.traffic.of(Window.HOUR, now_s, priority=one) for one in PriorityClass
    }
    families = [
        *_counted(board.kpis.counters),
        *_satisfaction(classes),
        *_prefetching(board.kpis.loads.of(Window.HOUR, now_s)),
        *_cost(board, summed(classes.values()), now_s),
        *_budgets(board, sorted(shown), now_s),
        *_avoided(board),
    ]
    families += _jobs(board)
    if board.world is not None:
        families += [*_planning(board.world), *_queues(board.world), *_machines(board.world)]
    return tuple(families)


def _counted(counters: LiveCounters) -> Iterator[Metric]:
    judged = _counter(
        "sla_requests", "Requests held against their target.", ["model", "class", "result"]
    )
    for labels, count in sorted(counters.judged.items()):
        judged.add_metric(labels, count)
    yield judged
    loads = _counter("loads", "Loads by what caused them and how they ended.", ["cause", "result"])
    for pair, count in sorted(counters.loads.items()):
        loads.add_metric(pair, count)
    yield loads
    yield _by("unloads", "Unloads by what caused them.", "cause", counters.unloads)
    below, buckets = 0, []
    for bound, count in zip((*LOAD_BOUNDS_S, None), counters.load_buckets, strict=True):
        below += count
        buckets.append(("+Inf" if bound is None else str(bound), float(below)))
    yield HistogramMetricFamily(
        "headstart_load_seconds",
        "How long loads took.",
        buckets=buckets,
        sum_value=counters.load_sum_s,
    )
    changes = {name: counters.instances.get(name, 0) for name in ("joined", "left")}
    yield _by("instance_changes", "Instances that came and went behind a name.", "change", changes)
    yield _by(
        "priority_violations",
        "Requests of this class that went before an earlier one of a higher class.",
        "class",
        _each_class(counters.violations),
    )
    yield _by(
        "aged_requests",
        "Requests of this class that went before a later one of a higher class.",
        "class",
        _each_class(counters.aged),
    )
    yield _by("feedback", "Feedback on answers.", "rating", counters.feedback)
    yield _by(
        "energy_joules", "Energy that the node's GPUs used.", "node", _named(counters.energy_j)
    )


def _satisfaction(classes: Mapping[PriorityClass, Traffic]) -> Iterator[Metric]:
    apdex = _gauge("apdex_ratio", "Apdex of the last hour.", ["class"])
    success = _gauge("success_ratio", "Requests of the last hour that succeeded.", ["class"])
    wait = _gauge("wait_p95_seconds", "95 % of the last hour's requests waited less.", ["class"])
    for priority, traffic in classes.items():
        _add(apdex, [priority.value], traffic.apdex)
        _add(success, [priority.value], traffic.success_ratio)
        _add(wait, [priority.value], traffic.wait.quantile(0.95))
    yield from (apdex, success, wait)
    said = _gauge("satisfaction_ratio", "Mean of the feedback of the last hour.")
    _add(said, [], summed(classes.values()).satisfaction_ratio)
    yield said


def _prefetching(loads: Loads) -> Iterator[Metric]:
    precision = _gauge("prefetch_precision_ratio", "Used, of the last hour's settled prefetches.")
    recall = _gauge("prefetch_recall_ratio", "Needed loads that a prefetch had ready, last hour.")
    reloads = _gauge(
        "reloads_last_hour", "Loads within five minutes of the model's unload, last hour."
    )
    took = _gauge("load_p95_seconds", "95 % of the last hour's loads took less.")
    _add(precision, [], loads.precision)
    _add(recall, [], loads.recall)
    _add(reloads, [], loads.reloads)
    _add(took, [], loads.took.quantile(0.95))
    yield from (precision, recall, reloads, took)


def _cost(board: Board, traffic: Traffic, now_s: float) -> Iterator[Metric]:
    held = board.kpis.holding.held_by_all(now_s, _HOUR_S)
    gb_hours = held.byte_s / 1000**3 / 3600.0
    tokens = None
    if traffic.token_requests:
        tokens = traffic.input_tokens + traffic.output_tokens
    for name, text, value, base in (
        ("tokens_per_gpu_second", "Tokens for each GPU second held", tokens, held.gpu_s),
        (
            "requests_per_gpu_second",
            "Requests for each GPU second held",
            traffic.completed,
            held.gpu_s,
        ),
        ("tokens_per_gigabyte_hour", "Tokens for each GB hour held", tokens, gb_hours),
        (
            "in_flight_mean",
            "Requests at once while a model is resident, on average",
            traffic.service_s,
            held.resident_s,
        ),
    ):
        family = _gauge(name, f"{text}, last hour.")
        _add(family, [], value / base if value is not None and base > 0.0 else None)
        yield family


def _budgets(board: Board, models: list[ModelId], now_s: float) -> Iterator[Metric]:
    remaining = _gauge(
        "error_budget_remaining_ratio", "What is left of the week's error budget.", ["model"]
    )
    burn = _gauge(
        "error_budget_burn_ratio",
        "How fast it is spent; 1: it lasts as long as its window.",
        ["model", "window"],
    )
    gone = _gauge(
        "error_budget_exhausted_seconds", "When it is spent at the present rate.", ["model"]
    )
    apdex = _gauge("model_apdex_ratio", "Apdex of the last hour.", ["model"])
    for model in models:
        found = model_budget(board, model, now_s)
        _add(remaining, [model], found.remaining_ratio)
        _add(burn, [model, "1h"], found.burn_1h)
        _add(burn, [model, "6h"], found.burn_6h)
        _add(gone, [model], found.exhausted_in_s)
        _add(apdex, [model], board.kpis.traffic.of(Window.HOUR, now_s, model=model).apdex)
    yield from (remaining, burn, gone, apdex)


def _avoided(board: Board) -> Iterator[Metric]:
    family = _gauge(
        "cold_starts_avoided", "Cold starts that another policy would have had more.", ["policy"]
    )
    comparison = headline_comparison(board)
    if comparison is not None:
        _add(family, [comparison.policy], comparison.avoided_cold_starts)
    yield family


def _jobs(board: Board) -> Iterator[Metric]:
    jobs = _gauge("jobs", "Background jobs by queue and state.", ["queue", "state"])
    for queue, counts in sorted(board.jobs.items()):
        for state, count in sorted(counts.items()):
            _add(jobs, [queue, state], count)
    workers = _gauge("workers", "Worker processes that are alive, by queue.", ["queue"])
    for queue, alive in sorted(board.workers.items()):
        _add(workers, [queue], alive)
    yield from (jobs, workers)


def _planning(world: WorldSnapshot) -> Iterator[Metric]:
    planning = world.planning
    runs = _counter("plan_runs", "Runs of the planner in the controller's present term.")
    total = _counter("plan_seconds", "Time that they took together.")
    p95 = _gauge("plan_p95_seconds", "95 % of the last 500 runs took less.")
    if planning is not None:
        runs.add_metric([], planning.runs)
        total.add_metric([], planning.total_s)
        _add(p95, [], planning.recent_p95_s)
    yield from (runs, total, p95)


def _queues(world: WorldSnapshot) -> Iterator[Metric]:
    capacity = _gauge(
        "queue_capacity_requests", "How many may wait for admission, over all gateways.", ["class"]
    )
    oldest = _gauge("queue_oldest_wait_seconds", "How long the oldest has waited.", ["class"])
    for queue in world.queues:
        _add(capacity, [queue.priority.value], queue.capacity)
        _add(oldest, [queue.priority.value], queue.oldest_wait_s)
    yield from (capacity, oldest)


def _named(counts: Mapping[NodeId, float]) -> dict[str, float]:
    return {str(name): value for name, value in counts.items()}


def _machines(world: WorldSnapshot) -> Iterator[Metric]:
    """What the panels show of each node; a node that does not tell is not there."""
    utilization = _gauge("node_gpu_utilization_ratio", "The busiest GPU's.", ["node"])
    memory = _gauge("node_gpu_memory_used_ratio", "GPU memory in use, over all cards.", ["node"])
    load = _gauge("node_load_average_15min", "Processes that run or wait, 15 minutes.", ["node"])
    power = _gauge("node_gpu_power_watts", "What the GPUs use now.", ["node"])
    for name, node in sorted(world.nodes.items()):
        reading = node.reading
        if reading is None:
            continue
        used, total = reading.gpu_memory_used_bytes, reading.gpu_memory_total_bytes
        _add(utilization, [name], reading.gpu_utilization_ratio)
        _add(memory, [name], used / total if used is not None and total else None)
        _add(load, [name], reading.load_average_15min)
        powers = [g.power_watts for g in reading.gpus if g.parent_uuid is None and g.power_watts]
        _add(power, [name], sum(powers) if powers else None)
    yield from (utilization, memory, load, power)


def _each_class(counts: Mapping[str, int]) -> dict[str, int]:
    # A series that begins at 0 shows its first increase.
    return {priority.value: counts.get(priority.value, 0) for priority in PriorityClass}


def _gauge(name: str, text: str, labels: list[str] | None = None) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"headstart_{name}", text, labels=labels or [])


def _counter(name: str, text: str, labels: list[str] | None = None) -> CounterMetricFamily:
    return CounterMetricFamily(f"headstart_{name}", text, labels=labels or [])


def _by(name: str, text: str, label: str, counts: Mapping[str, float]) -> Metric:
    family = _counter(name, text, [label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family


def _add(family: GaugeMetricFamily, labels: list[str], value: float | None) -> None:
    if value is not None:
        family.add_metric(labels, float(value))
