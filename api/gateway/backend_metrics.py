"""Prometheus figures of the nodes behind a gateway. Labels are configured names, so bounded."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from api.gateway.breaker import Phase
from api.gateway.dispatch import Dispatcher
from api.gateway.model_lists import ModelLists
from api.gateway.tallies import Histogram
from contracts.ids import NodeId

_SECONDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 180.0, 600.0)


class BackendMetrics(Collector):
    """Read at each scrape: what goes where, and which circuits are not closed."""

    def __init__(
        self, registry: CollectorRegistry, dispatcher: Dispatcher, lists: ModelLists
    ) -> None:
        self._dispatcher = dispatcher
        self._lists = lists
        registry.register(self)
        first_content = Histogram(
            "headstart_gateway_backend_first_content_seconds",
            "Time from sending a request to a backend to the first content of its answer.",
            ("backend",),
            bounds=_SECONDS,
            registry=registry,
        )
        for node in dispatcher.nodes:
            first_content.of(node)
        dispatcher.on_first_content = lambda node, took_s: first_content.of(node).observe(took_s)
        dispatcher.relay.fleet.on_left.append(first_content.forget)

    def collect(self) -> Iterable[Metric]:
        """As the registry asks."""
        dispatcher = self._dispatcher
        in_flight = GaugeMetricFamily(
            "headstart_gateway_backend_in_flight",
            "Requests that a backend works on for this gateway.",
            labels=("backend",),
        )
        for node, count in dispatcher.ledger.by_node.items():
            in_flight.add_metric((node,), count)
        yield in_flight
        yield from self._comings()
        yield self._circuits()
        yield self._forgotten()
        yield _counts(
            "headstart_gateway_circuit_openings",
            "How often a backend, or a model on it, was shut off after failures.",
            "backend",
            dispatcher.breakers.opened,
        )
        yield _counts(
            "headstart_gateway_backend_retries",
            "Requests that were sent once more, by why.",
            "reason",
            dispatcher.retries,
        )
        yield _counts(
            "headstart_gateway_lists_left_out",
            "Lists of models that a merged answer was given without.",
            "backend",
            self._lists.left_out,
        )

    def _comings(self) -> Iterable[Metric]:
        fleet = self._dispatcher.relay.fleet
        there = GaugeMetricFamily(
            "headstart_gateway_backends", "Backends that requests may be sent to."
        )
        there.add_metric((), len(fleet.nodes))
        yield there
        yield _counts(
            "headstart_gateway_backend_changes",
            "Backends that came and went behind their name, or were left out as too many.",
            "change",
            {"joined": fleet.joined, "left": fleet.left, "left_out": fleet.left_out},
        )

    def _circuits(self) -> Metric:
        """Models are counted, not named: one backend has two circuits' worth of labels."""
        family = GaugeMetricFamily(
            "headstart_gateway_circuits",
            "Circuits that are not closed, of a backend itself or of models on it.",
            labels=("backend", "scope", "state"),
        )
        counts = {
            (node, scope, phase): 0
            for node in tuple(self._dispatcher.nodes)  # they come and go while a scrape reads
            for scope in ("backend", "model")
            for phase in (Phase.OPEN, Phase.HALF_OPEN)
        }
        now_s = self._dispatcher.clock.monotonic_s()
        for (node, model), phase in self._dispatcher.breakers.phases(now_s).items():
            key = (node, "backend" if model is None else "model", phase)
            if key in counts:  # else it has left
                counts[key] += 1
        for (node, scope, phase), count in counts.items():
            family.add_metric((node, scope, phase.value), count)
        return family

    def _forgotten(self) -> Metric:
        family = CounterMetricFamily(
            "headstart_gateway_circuits_forgotten",
            "Circuits that were given up since there were too many.",
        )
        family.add_metric((), self._dispatcher.breakers.forgotten)
        return family


def _counts(name: str, text: str, label: str, counts: dict[str, int] | dict[NodeId, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=(label,))
    for value, count in tuple(counts.items()):
        family.add_metric((value,), count)
    return family
