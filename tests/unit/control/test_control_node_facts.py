"""GET /v1/nodes tells what a LocalAI is and what fights the plan there."""

from __future__ import annotations

from api.control.node_metrics import node_fact_metrics
from api.control.node_views import fact_views
from contracts.ids import NodeId
from contracts.node_facts import Access, Call, Capabilities, NodeFacts, NodeWarning, Peer
from contracts.world import NodeStatus, WorldSnapshot

NODE = NodeId("n")


def test_version_calls_warnings_and_peers_are_shown():
    facts = NodeFacts(
        capabilities=Capabilities(
            version="v4.9.0",
            calls={
                Call.LOAD: Access.ABSENT,
                Call.SETTINGS: Access.REFUSED,
                Call.SYSTEM: Access.YES,
                Call.P2P: Access.UNKNOWN,
            },
        ),
        warnings=(NodeWarning(setting="s", value="2", problem="p", remedy="r"),),
        peers=(Peer(name="w1", kind="worker", online=True, memory_used_ratio=0.5, models=2),),
    )
    views = fact_views(NodeStatus(node=NODE, facts=facts))
    assert views["version"] == "v4.9.0"
    assert views["calls"] == {"load": "absent", "settings": "refused", "system": "yes"}
    assert [one.remedy for one in views["warnings"]] == ["r"]
    assert [(one.name, one.memory_used_ratio) for one in views["peers"]] == [("w1", 0.5)]


def test_what_was_not_looked_up_yet_is_not_known():
    assert fact_views(NodeStatus(node=NODE)) == {
        "version": None, "calls": {}, "warnings": [], "peers": [], "sync_s": None,
        "call_p95_s": None, "discovery_s": None,
    }  # fmt: skip


def test_warnings_and_peers_have_series():
    def warning(setting: str, value: str) -> NodeWarning:
        return NodeWarning(setting=setting, value=value, problem="p", remedy="r")

    facts = NodeFacts(
        warnings=(warning("pinned", "a"), warning("pinned", "b"), warning("watchdog_idle", "5m")),
        peers=(
            Peer(name="w1", kind="worker", online=True),
            Peer(name="w2", kind="worker", online=False),
            Peer(name="w3", kind="worker", online=True),
        ),
    )
    nodes = {
        NODE: NodeStatus(node=NODE, facts=facts),
        NodeId("new"): NodeStatus(node=NodeId("new")),
    }
    series = {
        (sample.name.removeprefix("headstart_node_"), *sample.labels.values()): sample.value
        for metric in node_fact_metrics(WorldSnapshot(taken_at_s=0.0, nodes=nodes))
        for sample in metric.samples
    }
    assert series == {
        ("warnings", "n", "pinned"): 1.0,
        ("warnings", "n", "watchdog_idle"): 1.0,
        ("peers", "n", "lost"): 1.0,
        ("peers", "n", "online"): 2.0,
    }
