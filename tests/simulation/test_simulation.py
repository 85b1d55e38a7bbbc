"""The loop itself, under a driver that does what the test says and nothing else."""

from __future__ import annotations

import pytest

from contracts.ids import ModelId
from simulator.cluster_state import State
from simulator.faults import Faults, NodeChange
from simulator.simulation import Simulation
from simulator.workloads import Arrival, Workload, WorkloadModel

pytestmark = pytest.mark.simulation

A, B, C = (ModelId(name) for name in "abc")


class Scripted:
    """Does at each moment what ``script`` says: {time: [(what, model), …]}."""

    name = "scripted"

    def __init__(self, script):
        self.script = script
        self.seen = []

    def begin(self, simulation):
        self.sim = simulation
        for at_s in self.script:
            simulation.wake_at(at_s, "script")

    def on_arrival(self, request, model):
        self.seen.append((self.sim.now_s, "arrival", model))

    def on_started(self, request, model):
        self.seen.append((self.sim.now_s, "started", model))

    def on_ended(self, request, model):
        self.seen.append((self.sim.now_s, "ended", model))

    def on_loaded(self, model):
        self.seen.append((self.sim.now_s, "loaded", model))

    def on_load_failed(self, model, *, lied):
        self.seen.append((self.sim.now_s, "lied" if lied else "failed", model))

    def on_node(self, node, lost, broken):
        self.seen.append((self.sim.now_s, f"node {node}", (lost, broken)))

    def on_timer(self, tag):
        assert tag == "script"
        for what, model in self.script[self.sim.now_s]:
            if what == "unload":
                self.sim.unload(model)
            else:
                kind, _, node = what.partition("@")
                self.sim.start_load(model, prefetch=kind == "prefetch", node=int(node or 0))


def play(script, *arrivals, mb=30, check_memory=True, **world):
    models = {
        name: WorkloadModel(model=name, size_mb=10, load_s=5.0, parallel=1, slo_s=2.0)
        for name in (A, B, C)
    }
    workload = Workload(
        name="hand",
        models=models,
        arrivals=tuple(Arrival(at_s, m, 1.0, *rank) for at_s, m, *rank in arrivals),
    )
    driver = Scripted({at_s: script[at_s] for at_s in sorted(script)})
    simulation = Simulation(workload, mb, driver, check_memory=check_memory, **world)
    simulation.run()
    return simulation, driver


def test_what_happens_is_told_in_its_order():
    _, driver = play({1.0: [("load", A)]}, (0.0, A), (6.0, A))
    assert driver.seen == [
        (0.0, "arrival", A),
        # the load ends at 6, at the same instant at which the second request comes first
        (6.0, "arrival", A),
        (6.0, "started", A),
        (6.0, "loaded", A),
        (7.0, "started", A),
        (7.0, "ended", A),
        (8.0, "ended", A),
    ]


def test_a_prefetch_that_is_unloaded_unused_is_wasted():
    sim, _ = play({1.0: [("prefetch", B)], 7.0: [("unload", B)], 8.0: [("load", A)]}, (0.0, A))
    tally = sim.tally
    assert (tally.prefetches, tally.prefetches_used, tally.prefetches_wasted) == (1, 0, 1)
    assert (tally.loads, tally.unloads) == (2, 1)
    assert tally.held_mb_s == 10 * (7.0 - 1.0) + 10 * (14.0 - 8.0)


def test_one_still_resident_at_the_end_is_neither_used_nor_wasted():
    sim, _ = play({1.0: [("prefetch", B), ("load", A)]}, (0.0, A))
    assert (sim.tally.prefetches_used, sim.tally.prefetches_wasted) == (0, 0)
    assert sim.models[B].state is State.HOT


@pytest.mark.parametrize("at_s", [3.0, 10.0])
def test_a_request_during_the_load_or_after_it_uses_a_prefetch_once(at_s):
    sim, _ = play({1.0: [("prefetch", A)], 20.0: [("unload", A)]}, (0.0, B), (at_s, A), (15.0, A))
    assert (sim.tally.prefetches_used, sim.tally.prefetches_wasted) == (1, 0)


def test_a_prefetch_of_what_is_waited_for_already_is_used():
    sim, _ = play({1.0: [("prefetch", A)]}, (0.0, A))
    assert sim.tally.prefetches_used == 1


@pytest.mark.parametrize(
    ("script", "mb", "message"),
    [
        ({1.0: [("load", A), ("load", A)]}, 30, "a is LOADING"),
        ({1.0: [("load", A), ("load", B), ("load", C)]}, 30, "all load slots are taken"),
        ({1.0: [("load", A), ("load", B)]}, 15, "b does not fit"),
        ({1.0: [("load", A)], 2.0: [("unload", A)]}, 30, "a is not idle"),
        ({1.0: [("load", A)], 6.5: [("unload", A)]}, 30, "a is not idle"),
        ({1.0: [("unload", A)]}, 30, "a is not idle"),
    ],
)
def test_an_order_that_cannot_be_carried_out_is_a_fault_of_the_driver(script, mb, message):
    with pytest.raises(AssertionError, match=message):
        play(script, (0.0, A), mb=mb)


def test_memory_is_not_looked_at_where_a_rule_counts_models():
    sim, _ = play({1.0: [("load", A), ("load", B)]}, (0.0, A), (0.0, B), mb=15, check_memory=False)
    assert sim.used_mb == 20


def test_a_request_that_never_started_has_no_wait():
    sim, _ = play({}, (0.0, A))
    with pytest.raises(AssertionError):
        _ = sim.outcomes[0].wait_s


def test_who_listens_is_told_of_each_arrival():
    workload = Workload(
        name="hand",
        models={A: WorkloadModel(model=A, size_mb=1, load_s=1.0, parallel=1, slo_s=2.0)},
        arrivals=(Arrival(0.0, A, 1.0), Arrival(1.0, A, 1.0)),
    )
    told: list[int] = []
    Simulation(workload, 10, Scripted({})).run(told.append)
    assert told == [1, 2]


def test_a_load_names_its_node():
    script = {1.0: [("load@1", A), ("load@1", B)], 20.0: [("unload", A)], 21.0: [("load@0", A)]}
    sim, _ = play(script, (0.0, A), (30.0, A), mb=20, nodes=2)
    assert [node.used_mb for node in sim.nodes] == [10, 10]
    assert (sim.models[A].node, sim.models[B].node) == (0, 1)


def test_a_node_that_is_away_takes_no_load():
    faults = Faults(changes=(NodeChange(at_s=1.0, node=0, alive=False),))
    with pytest.raises(AssertionError, match="node 0 is away"):
        play({2.0: [("load", A)]}, (0.0, A), faults=faults)


def test_what_goes_with_a_node_is_told():
    faults = Faults(changes=(NodeChange(at_s=7.2, node=0, alive=False),))
    _, driver = play({1.0: [("load", A), ("load", B)]}, (0.0, B), (6.5, A), faults=faults)
    assert (7.2, "node 0", ((A, B), (1,))) in driver.seen
    assert (6.0, "loaded", A) in driver.seen


def test_a_load_that_fails_is_told_when_it_does():
    _, driver = play({1.0: [("load", A)]}, (0.0, B), faults=Faults(failing_ratio=1.0))
    (failed,) = (one for one in driver.seen if one[1] == "failed")
    assert 1.0 <= failed[0] <= 6.0
