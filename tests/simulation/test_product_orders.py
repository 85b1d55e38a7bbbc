"""Orders that rest on a wrong belief are refused as LocalAI would; a planner of the test's own."""

from __future__ import annotations

import pytest

from contracts.config import PlannerConfig
from contracts.events import LoadCause, PriorityClass, UnloadCause
from contracts.ids import ModelId
from contracts.plan import LoadModel, Plan, PlanResult, SetLimits, UnloadModel
from contracts.reasons import Reason
from contracts.world import Mode, Residency
from simulator.cluster_state import State
from simulator.faults import Faults, NodeChange
from simulator.product import NODE, ProductDriver
from simulator.simulation import Simulation
from simulator.workloads import Arrival, Workload, WorkloadModel

pytestmark = pytest.mark.simulation

A, B = ModelId("a"), ModelId("b")
WRONG = Faults(late_ratio=1e-9)
"""Nothing goes wrong by itself, but orders may."""


def load(model, *, after=(), cause=LoadCause.DEMAND):
    return LoadModel(
        action_id=f"load-{model}",
        model=model,
        node=NODE,
        cause=cause,
        reason=Reason.DEMAND,
        after=after,
    )


def unload(model, *, drain_s=None):
    return UnloadModel(
        action_id=f"unload-{model}",
        model=model,
        node=NODE,
        cause=UnloadCause.EVICTED,
        reason=Reason.LEAST_RECENTLY_USED,
        drain_s=drain_s,
    )


class Script:
    """Orders what is written for a moment, once, at the first run from then on."""

    def __init__(self, **orders):
        self.orders = {float(at[1:]): list(what) for at, what in orders.items()}
        self.worlds = []

    def __call__(self, *, world, forecasts, state, config):
        self.worlds.append(world)
        due = [at_s for at_s in self.orders if at_s <= world.taken_at_s]
        actions = tuple(action for at_s in due for action in self.orders.pop(at_s))
        plan = Plan(
            plan_id="p",
            made_at_s=world.taken_at_s,
            based_on=0,
            mode=Mode.ACTIVE,
            actions=actions,
            decisions=(),
        )
        return PlanResult(plan=plan, state=state, next_tick_at_s=world.taken_at_s + 1.0)

    def residency(self, model):
        return self.worlds[-1].models[model].residency


def run(script, *arrivals, faults=WRONG, mb=20, parallel=1):
    models = {
        name: WorkloadModel(model=name, size_mb=10, load_s=10.0, parallel=parallel, slo_s=2.0)
        for name in (A, B)
    }
    ordered = tuple(sorted(Arrival(*one) for one in arrivals))
    driver = ProductDriver("lru", None, PlannerConfig(reserve_ratio=0.0), planner=script)
    simulation = Simulation(
        Workload(name="hand", models=models, arrivals=ordered), mb, driver, faults=faults
    )
    simulation.run()
    return simulation


def test_a_busy_model_is_not_unloaded_and_goes_on_serving():
    script = Script(t0=[load(A)], t15=[unload(A)])
    played = run(script, (0.0, A, 20.0), (14.0, A, 1.0), (40.0, A, 1.0))
    assert played.models[A].state is State.HOT
    assert not played.models[A].draining
    assert script.residency(A) is Residency.HOT
    assert [outcome.started_s for outcome in played.outcomes] == [10.0, 30.0, 40.0]


def test_one_that_loads_is_not_unloaded():
    played = run(Script(t0=[load(A)], t5=[unload(A)]), (0.0, A, 1.0), (30.0, A, 1.0))
    assert played.tally.unloads == 0


def test_one_that_is_gone_already_is_told_to_be():
    script = Script(t0=[load(A)], t5=[unload(B)])
    assert run(script, (0.0, A, 1.0), (30.0, A, 1.0)).tally.unloads == 0


def test_a_load_of_what_is_hot_is_no_load():
    script = Script(t0=[load(A)], t15=[load(A)])
    played = run(script, (0.0, A, 1.0), (30.0, A, 1.0))
    assert played.tally.loads == 1
    assert script.residency(A) is Residency.HOT


def test_a_load_of_what_loads_is_no_load():
    assert run(Script(t0=[load(A)], t5=[load(A)]), (0.0, A, 1.0)).tally.loads == 1


def test_a_load_that_does_not_fit_fails():
    script = Script(t0=[load(A)], t15=[load(B)], t30=[unload(A), load(B)])
    played = run(script, (0.0, A, 1.0), (20.0, B, 1.0), (35.0, B, 1.0), mb=10)
    assert (played.tally.loads, played.tally.unloads) == (2, 1)


def test_a_load_waits_for_all_that_drain_for_it():
    script = Script(
        t0=[load(A), load(B)],
        t15=[unload(A, drain_s=60.0), unload(B, drain_s=60.0)],
        t16=[load(A, after=(A, B))],
    )
    played = run(script, (0.0, A, 20.0), (0.0, B, 40.0), (17.0, A, 1.0), mb=20)
    # a ends at 30, b at 50
    late = next(o for o in played.outcomes if o.arrival.at_s == 17.0)
    assert late.started_s == 60.0


def test_a_drain_that_has_ended_is_not_given_up_later():
    script = Script(t0=[load(A)], t15=[unload(A, drain_s=30.0)], t25=[load(A)])
    played = run(script, (0.0, A, 10.0), (24.0, A, 1.0), (80.0, A, 1.0))
    assert (played.tally.loads, played.tally.unloads) == (2, 1)


def test_other_orders_are_no_concern_of_the_simulation():
    limits = SetLimits(
        action_id="x",
        priority=PriorityClass.BATCH,
        slots=1,
        valid_until_s=9.0,
        reason=Reason.DEMAND,
    )
    assert run(Script(t0=[limits, load(A)]), (0.0, A, 1.0)).tally.loads == 1


def test_a_node_that_goes_takes_what_drains_with_it():
    faults = Faults(
        changes=(NodeChange(at_s=20.0, node=0, alive=False), NodeChange(at_s=30.0, node=0))
    )
    script = Script(t0=[load(A)], t15=[unload(A, drain_s=60.0), load(B, after=(A,))], t41=[load(B)])
    played = run(script, (0.0, A, 50.0), (16.0, B, 1.0), mb=10, faults=faults)
    assert played.outcomes[1].started_s is not None
    assert played.tally.lost == 1
