"""What works against the plan on each node, and its peers, for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from contracts.world import WorldSnapshot


def instance_metrics(world: WorldSnapshot) -> Iterator[Metric]:
    """How many instances there are behind a name; nothing where all nodes are configured."""
    family = GaugeMetricFamily(
        "headstart_instances",
        "Instances behind a name, by whether their address is found now.",
        labels=["state"],
    )
    if world.instances:
        missing = sum(one.missing_since_s is not None for one in world.instances.values())
        family.add_metric(["found"], len(world.instances) - missing)
        family.add_metric(["missing"], missing)
    yield family


def node_fact_metrics(world: WorldSnapshot) -> Iterator[Metric]:
    """A series for each warning and each state of peers; the words of both are a closed list."""
    warnings = GaugeMetricFamily(
        "headstart_node_warnings",
        "1 for each setting of a LocalAI, or threshold, that works against the plan.",
        labels=["node", "setting"],
    )
    peers = GaugeMetricFamily(
        "headstart_node_peers",
        "Other machines that a LocalAI works with, by whether it hears from them.",
        labels=["node", "state"],
    )
    for name in sorted(world.nodes):
        facts = world.nodes[name].facts
        if facts is None:
            continue
        for setting in sorted({warning.setting for warning in facts.warnings}):
            warnings.add_metric([name, setting], 1.0)
        states = Counter("online" if peer.online else "lost" for peer in facts.peers)
        for state, count in sorted(states.items()):
            peers.add_metric([name, state], float(count))
    yield warnings
    yield peers
