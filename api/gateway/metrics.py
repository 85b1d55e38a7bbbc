"""Prometheus figures of a gateway, in a registry of their own, with bounded labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_latest
from prometheus_client.registry import Collector

from api.gateway.tallies import Histogram, Tally
from api.gateway.warmth import WarmthWatch
from contracts.events import PriorityClass
from contracts.ids import ModelId

OTHER = "other"
"""The label of every model that the routing table does not list."""

MAX_MODEL_LABELS = 1_000
_SECONDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 180.0, 600.0)


class Readings(Protocol):
    """What is read at each scrape instead of being counted along."""

    def in_flight(self) -> Mapping[ModelId, int]: ...  # noqa: D102

    def waiting(self) -> Mapping[ModelId, int]: ...  # noqa: D102

    def queued(self) -> Mapping[PriorityClass, int]: ...  # noqa: D102

    def events(self) -> Mapping[str, int]:
        """Telemetry events written and dropped."""
        ...

    def table_age_s(self) -> float | None: ...  # noqa: D102


class GatewayMetrics:
    """Counts what passes.

    Parameters
    ----------
    is_listed : callable
        Whether a name is a model of the routing table; all others share one label.
    """

    def __init__(self, is_listed: Callable[[ModelId], bool]) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self._is_listed = is_listed
        self._labelled: set[str] = set()
        name, registry = "headstart_gateway", self.registry
        self._requests = Tally(
            f"{name}_requests_total",
            "Inference requests by how they ended.",
            ("model", "operation", "class", "outcome", "code"),
            registry=registry,
        )
        self._durations = Histogram(
            f"{name}_request_seconds",
            "Time from a request's arrival to its end.",
            ("model", "class"),
            bounds=_SECONDS,
            registry=registry,
        )
        self._first_content = Histogram(
            f"{name}_first_content_seconds",
            "Time from a request's arrival to its first content.",
            ("model", "class"),
            bounds=_SECONDS,
            registry=registry,
        )
        self._waits = Histogram(
            f"{name}_queue_wait_seconds",
            "Time that a request waited for a slot or for its model to be loaded.",
            ("class",),
            bounds=_SECONDS,
            registry=registry,
        )
        self._cold = Tally(
            f"{name}_cold_requests_total",
            "Requests whose model was not resident when they came.",
            ("model",),
            registry=registry,
        )
        self._unexpected_cold = Tally(
            f"{name}_unexpected_cold_total",
            "Requests to a resident model whose first content took as long as a load.",
            ("model",),
            registry=registry,
        )
        self._warmth = WarmthWatch()
        self._tokens = Tally(
            f"{name}_tokens_total",
            "Tokens as answers told them, else the pieces of content in their streams.",
            ("model", "direction"),
            registry=registry,
        )
        self._refusals = Tally(
            f"{name}_refusals_total",
            "Requests that the gateway answered itself, by the type of its answer.",
            ("type",),
            registry=registry,
        )
        self._count_queues(name)
        self._count_ways(name)

    def _count_ways(self, name: str) -> None:
        """Ways that are not the usual one of a request to its model."""
        registry = self.registry
        self._passed = Tally(
            f"{name}_passed_total",
            "Requests that are no inference, by LocalAI's answer.",
            ("code",),
            registry=registry,
        )
        self._lone_loads = Tally(
            f"{name}_lone_loads_total",
            "Loads that this gateway ordered since no controller answered.",
            ("result",),
            registry=registry,
        )
        self._fallbacks = Tally(
            f"{name}_fallbacks_total",
            "Requests that were answered from a lower rung of their model's ladder.",
            ("model", "served_by"),
            registry=registry,
        )

    def _count_queues(self, name: str) -> None:
        """What happens to requests between their arrival and LocalAI."""
        registry = self.registry
        self._preempted = Tally(
            f"{name}_preempted_total",
            "Requests that were cancelled for a realtime request.",
            ("class",),
            registry=registry,
        )
        self._put_backs = Tally(
            f"{name}_put_back_total",
            "Times that a request waited again since LocalAI had no slot for it.",
            ("class",),
            registry=registry,
        )
        self._retries = Tally(
            f"{name}_retries_total",
            "Requests that repeat one which was refused within the last minute.",
            registry=registry,
        )
        self._health_checks = Tally(
            f"{name}_health_checks_total",
            "Health checks that ask a model, which are no demand, by what became of them.",
            ("result",),
            registry=registry,
        )

    def read_from(self, readings: Readings) -> None:
        """Add what is read at each scrape."""
        self.registry.register(_Scraped(readings, self.model_label))

    def render(self, *, openmetrics: bool = False) -> bytes:
        """The exposition text. Slow with many series: call it in a thread."""
        if openmetrics:
            text: bytes = openmetrics_latest(self.registry)  # type: ignore[no-untyped-call]  # the library's
            return text
        return generate_latest(self.registry)

    def model_label(self, model: ModelId | None) -> str:
        """The label of a model: bounded, whatever names callers make up."""
        if model is None or not self._is_listed(model):
            return OTHER
        if model not in self._labelled:
            if len(self._labelled) >= MAX_MODEL_LABELS:
                return OTHER
            self._labelled.add(model)
        return model

    def dispatched(
        self, model: ModelId | None, priority: PriorityClass, *, wait_s: float, cold: bool
    ) -> None:
        """A request goes to a node."""
        self._waits.of(priority).observe(wait_s)
        if cold:
            self._cold.of(self.model_label(model)).inc()

    def fell_back(self, model: ModelId | None, served_by: ModelId) -> None:
        """A request goes to another model than the one that was asked for."""
        self._fallbacks.of(self.model_label(model), self.model_label(served_by)).inc()

    def first_content(self, model: ModelId | None, priority: PriorityClass, ttft_s: float) -> None:
        """The first content of an answer has reached its caller."""
        self._first_content.of(self.model_label(model), priority).observe(ttft_s)

    def ended(
        self,
        model: ModelId | None,
        *,
        operation: str,
        priority: PriorityClass,
        outcome: str,
        status: int | None,
        duration_s: float,
    ) -> None:
        """An inference request has ended."""
        label, code = self.model_label(model), _code(status)
        self._requests.of(label, operation, priority, outcome, code).inc()
        self._durations.of(label, priority).observe(duration_s)

    def warm_first_content(self, model: ModelId | None, first_content_s: float) -> None:
        """First content of a resident model, so many seconds after its dispatch."""
        label = self.model_label(model)
        if label != OTHER and self._warmth.looks_cold(label, first_content_s):
            self._unexpected_cold.of(label).inc()

    def tokens(
        self, model: ModelId | None, input_tokens: int | None, output_tokens: int | None
    ) -> None:
        """Tokens of one answer; None is not counted."""
        label = self.model_label(model)
        if input_tokens:
            self._tokens.of(label, "input").inc(input_tokens)
        if output_tokens:
            self._tokens.of(label, "output").inc(output_tokens)

    def refused(self, problem_type: str) -> None:
        """The gateway answered with an error of its own."""
        self._refusals.of(problem_type).inc()

    def preempted(self, priority: PriorityClass) -> None:
        """A request was cancelled for a realtime one."""
        self._preempted.of(priority).inc()

    def put_back(self, priority: PriorityClass) -> None:
        """LocalAI had no slot for a request, which waits again."""
        self._put_backs.of(priority).inc()

    def retried(self) -> None:
        """A request came again that was refused a moment ago."""
        self._retries.of().inc()

    def health_check(self, result: str) -> None:
        """A health check that asks a model was forwarded, or told that it is not resident."""
        self._health_checks.of(result).inc()

    def passed(self, status: int) -> None:
        """A request that is no inference was answered."""
        self._passed.of(_code(status)).inc()

    def lone_load(self, result: str) -> None:
        """A load that this gateway ordered alone has ended."""
        self._lone_loads.of(result).inc()


class _Scraped(Collector):
    """Gauges that are true at the moment of the scrape, so that none outlives its model."""

    def __init__(self, readings: Readings, model_label: Callable[[ModelId | None], str]) -> None:
        self._readings = readings
        self._model_label = model_label

    def collect(self) -> Iterable[Metric]:
        yield self._by_model(
            "headstart_gateway_in_flight",
            "Requests that LocalAI works on for this gateway.",
            self._readings.in_flight(),
        )
        yield self._by_model(
            "headstart_gateway_waiting",
            "Requests that wait for a model.",
            self._readings.waiting(),
        )
        queued = GaugeMetricFamily(
            "headstart_gateway_queued", "Requests that wait, by class.", labels=("class",)
        )
        for priority, count in self._readings.queued().items():
            queued.add_metric((priority.value,), count)
        yield queued
        events = CounterMetricFamily(
            "headstart_gateway_events", "Telemetry events by their fate.", labels=("result",)
        )
        for result, count in self._readings.events().items():
            events.add_metric((result,), count)
        yield events
        age_s = self._readings.table_age_s()
        age = GaugeMetricFamily(
            "headstart_gateway_routing_table_age_seconds",
            "Age of the last routing table; absent where there is none.",
        )
        if age_s is not None:
            age.add_metric((), age_s)
        yield age

    def _by_model(self, name: str, text: str, counts: Mapping[ModelId, int]) -> Metric:
        family = GaugeMetricFamily(name, text, labels=("model",))
        totals: dict[str, int] = {}
        for model, count in counts.items():
            label = self._model_label(model)
            totals[label] = totals.get(label, 0) + count
        for label, count in totals.items():
            family.add_metric((label,), count)
        return family


def _code(status: int | None) -> str:
    if status is None:
        return "none"
    return str(status) if 100 <= status < 600 else OTHER
