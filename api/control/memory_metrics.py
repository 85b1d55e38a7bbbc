"""Memory by place, and what unloads did not give back, for Prometheus. Labels are bounded."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from api.control.memory_views import memory_views
from contracts.world import WorldSnapshot

MAX_PLACES = 64


def memory_metrics(world: WorldSnapshot) -> Iterator[Metric]:
    """Each place of each node, the first ``MAX_PLACES`` of them."""
    occupied = GaugeMetricFamily(
        "headstart_place_occupied_bytes",
        "Memory of a card or of host RAM that our models take.",
        labels=["node", "place"],
    )
    others = GaugeMetricFamily(
        "headstart_place_others_bytes",
        "Memory of a card or of host RAM that others use.",
        labels=["node", "place"],
    )
    unseen = GaugeMetricFamily(
        "headstart_node_memory_unseen_bytes",
        "Memory of stopped models that the probe does not show as free.",
        labels=["node"],
    )
    leaked = GaugeMetricFamily(
        "headstart_node_memory_leaked_bytes",
        "What unloads gave back too little, all together: the drift of the idle floor.",
        labels=["node"],
    )
    for name in sorted(world.nodes):
        views = memory_views(world.nodes[name], world.on_node(name))
        for place in views["places"][:MAX_PLACES]:
            occupied.add_metric([name, place.id], place.occupied_bytes)
            others.add_metric([name, place.id], place.used_by_others_bytes)
        unseen.add_metric([name], sum(one.held_bytes for one in views["unseen"]))
        leaked.add_metric([name], views["leaked_bytes"])
    yield from (occupied, others, unseen, leaked)
