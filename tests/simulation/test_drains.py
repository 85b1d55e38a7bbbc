"""A busy model whose turn is over is drained: it takes nothing new, and goes when it can."""

from __future__ import annotations

import pytest

from contracts.config import PlannerConfig
from contracts.ids import ModelId
from simulator.checkers import Watched, check_plan
from simulator.cluster_state import State
from simulator.comparison import play
from simulator.faults import Faults, NodeChange
from simulator.product import ProductDriver
from simulator.simulation import Simulation
from simulator.swarm import drawn_world
from simulator.workloads import Arrival, Workload, WorkloadModel

pytestmark = pytest.mark.simulation

A, B = ModelId("a"), ModelId("b")


def workload(*arrivals):
    models = {
        name: WorkloadModel(model=name, size_mb=10, load_s=10.0, parallel=1, slo_s=2.0)
        for name in (A, B)
    }
    ordered = tuple(sorted(Arrival(*one) for one in arrivals))
    return Workload(name="hand", models=models, arrivals=ordered)


def run(load, faults=None, **config):
    planner = PlannerConfig(policy="lru", reserve_ratio=0.0, **config)
    watched = Watched(ProductDriver("lru", None, planner, on_plan=check_plan))
    world = {} if faults is None else {"faults": faults}
    simulation = Simulation(load, 10, watched, **world)
    simulation.run()
    watched.check_end()
    return simulation


def endless(until_s):
    """Requests for a in such a row that it is never idle, and one for b."""
    return [(float(n), A, 1.5) for n in range(int(until_s))] + [(20.0, B, 1.0)]


def test_who_waits_for_a_busy_model_gets_its_turn():
    played = run(workload(*endless(200.0)))
    (b,) = (outcome for outcome in played.outcomes if outcome.arrival.model == B)
    # a turn, the request that runs, the load
    assert b.wait_s <= 15.0 + 1.5 + 10.0 + 5.0
    assert played.models[A].state is State.HOT


def test_without_turns_it_waits_to_the_end():
    played = run(workload(*endless(200.0)), turn_s=None)
    (b,) = (outcome for outcome in played.outcomes if outcome.arrival.model == B)
    assert b.wait_s > 180.0


def test_what_comes_while_it_drains_is_cold_and_waits_for_the_next_load():
    played = run(workload((0.0, A, 55.0), (20.0, B, 1.0), (50.0, A, 1.0)))
    late = next(o for o in played.outcomes if o.arrival.at_s == 50.0)
    assert late.cold
    assert late.started_s >= 65.0


def test_one_that_does_not_end_in_time_stays_and_the_load_is_off():
    played = run(workload((0.0, A, 300.0), (20.0, B, 1.0), (100.0, A, 1.0)), turn_drain_s=5.0)
    (b,) = (outcome for outcome in played.outcomes if outcome.arrival.model == B)
    assert b.started_s >= 320.0
    assert played.tally.loads >= 2


def test_a_node_that_goes_ends_a_drain():
    gone = Faults(
        changes=(NodeChange(at_s=50.0, node=0, alive=False), NodeChange(at_s=60.0, node=0))
    )
    played = run(workload((0.0, A, 300.0), (20.0, B, 1.0)), gone)
    (b,) = (outcome for outcome in played.outcomes if outcome.arrival.model == B)
    assert b.ended_s is not None
    assert b.started_s < 200.0


def test_what_is_cold_is_not_drained():
    simulation = Simulation(
        workload((0.0, A, 1.0)), 10, ProductDriver("lru", None, PlannerConfig(policy="lru"))
    )
    with pytest.raises(AssertionError, match="a is COLD"):
        simulation.drain(A)


def test_who_comes_at_the_moment_at_which_the_turn_is_over_waits_for_the_next_load():
    # b waits from 20 on; at 40, its patience at an end, the next request for a comes
    load = workload((0.0, A, 15.0), (20.0, B, 1.0), (25.0, A, 15.0), (40.0, A, 1.0))
    played = run(load)
    assert all(outcome.ended_s is not None for outcome in played.outcomes)


def test_a_world_that_a_swarm_has_found():
    """A request came at the very moment at which its model's turn was over."""
    world = drawn_world(20023)
    play("lru:tick_s=1.0", world.workload, world.setting)
