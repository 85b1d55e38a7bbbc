"""What people see of instances that come and go behind a name."""

from __future__ import annotations

from dataclasses import replace

from api.control.kpis.counters import LiveCounters
from api.control.kpis.ledger import KpiLedger
from api.control.node_metrics import instance_metrics
from api.control.node_views import instance_view
from api.control.phrases import sentence
from contracts.events import NodeJoined, NodeLeft, NodeObserved
from contracts.ids import NodeId
from contracts.instances import Instance
from contracts.plan import Decision, Outcome
from contracts.reasons import Reason
from contracts.world import NodeStatus, WorldSnapshot
from tests.worlds import stamp

ONE, TWO, NAME = (NodeId(name) for name in ("localai-10.0.0.1", "localai-10.0.0.2", "localai"))


def world(*instances: Instance) -> WorldSnapshot:
    return WorldSnapshot(
        taken_at_s=100.0,
        nodes={one.node: NodeStatus(node=one.node) for one in instances},
        instances={one.node: one for one in instances},
    )


def instance(node: NodeId, joined_at_s: float) -> Instance:
    return Instance(node=node, address=node.removeprefix("localai-"), joined_at_s=joined_at_s)


def test_each_says_since_when_it_is_known_and_whether_it_leaves():
    first, second = instance(ONE, 10.0), instance(TWO, 20.0)
    gone = replace(first, missing_since_s=90.0, is_leaving=True)
    view = instance_view(world(gone, second), ONE)
    assert view is not None
    assert view.model_dump() == {
        "address": "10.0.0.1", "known_since_s": 10.0, "missing_since_s": 90.0, "leaving": True,
        "primary": False,
    }  # fmt: skip
    other = instance_view(world(gone, second), TWO)
    assert other is not None
    assert (other.primary, other.leaving) == (True, False)
    assert instance_view(world(second), ONE) is None


def test_one_that_is_at_the_name_itself_has_no_address():
    at_the_name = Instance(node=NAME, address="", joined_at_s=0.0)
    view = instance_view(world(at_the_name), NAME)
    assert view is not None
    assert view.address is None


def test_there_are_series_where_there_are_instances():
    missing = replace(instance(TWO, 0.0), missing_since_s=5.0)
    (family,) = instance_metrics(world(instance(ONE, 0.0), missing))
    assert [(one.labels["state"], one.value) for one in family.samples] == [
        ("found", 1.0), ("missing", 1.0),
    ]  # fmt: skip
    (family,) = instance_metrics(WorldSnapshot(taken_at_s=0.0))
    assert family.samples == []


def test_comings_and_goings_are_counted_and_what_was_of_one_goes_with_it():
    counters = LiveCounters()
    counters.start_at(0.0)
    counters.observe(NodeJoined(**stamp(1.0), node=ONE, address="10.0.0.1"))
    counters.used_energy(ONE, 5.0, 2.0)
    counters.observe(NodeLeft(**stamp(3.0), node=ONE))
    counters.observe(NodeLeft(**stamp(4.0), node=TWO))
    assert counters.instances == {"joined": 1, "left": 2}
    assert counters.energy_j == {}


def test_the_memory_of_a_node_that_has_left_counts_no_more():
    ledger = KpiLedger(lambda _model: 2.0)
    for node in (ONE, TWO):
        ledger.observe(
            NodeObserved(
                **stamp(1.0), node=node, resident=(), busy=(), memory_total_bytes=8,
                memory_used_bytes=1, model_limit=None,
            )
        )  # fmt: skip
    ledger.observe(NodeLeft(**stamp(2.0), node=ONE))
    assert ledger._totals == {TWO: 8}


def test_its_decisions_are_sentences():
    told = Decision(
        policy="instances", subject=ONE, outcome=Outcome.CHANGE, reason=Reason.INSTANCE_BACK
    )
    assert sentence(told) == (
        "Instance localai-10.0.0.1: its address is behind the name of LocalAI again."
    )
    flapping = replace(told, outcome=Outcome.HOLD, reason=Reason.INSTANCE_FLAPS)
    assert sentence(flapping).startswith("Leave localai-10.0.0.1: its address comes and goes")
