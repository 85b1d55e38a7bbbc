"""Each check is shown to fail on a run that is made wrong on purpose."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.config import PlannerConfig
from contracts.events import LoadCause, UnloadCause
from contracts.ids import ModelId, NodeId
from contracts.plan import Decision, LoadModel, Outcome, Plan, PlannerState, PlanResult, UnloadModel
from contracts.reasons import Reason
from contracts.world import Mode, ModelStatus, NodeStatus, Residency, WorldSnapshot
from simulator.checkers import STARVATION_S, Violation, Watched, check_plan
from simulator.cluster_state import State
from simulator.product import ProductDriver
from simulator.rules import RULES, RuleDriver
from simulator.simulation import Simulation
from simulator.swarm import MAX_REQUESTS, drawn_world, swarm, swarm_policies
from simulator.workloads import MIB, Arrival, Workload, WorkloadModel

pytestmark = pytest.mark.simulation

A, B = ModelId("a"), ModelId("b")
NODE = NodeId("n")


def workload(*arrivals):
    models = {
        name: WorkloadModel(model=name, size_mb=10, load_s=10.0, parallel=1, slo_s=2.0)
        for name in (A, B)
    }
    return Workload(name="hand", models=models, arrivals=tuple(Arrival(*a) for a in arrivals))


def run(driver, *arrivals, every=1, mb=10):
    watched = Watched(driver, every=every)
    Simulation(workload(*arrivals), mb, watched).run()
    watched.check_end()


def broken(what):
    """``lru`` that does ``what`` to the simulation when the first load ends."""

    class Broken(RuleDriver):
        def on_loaded(self, model):
            what(self._sim)
            super().on_loaded(model)

    return Broken()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda sim: setattr(sim.nodes[0], "used_mb", 3), "memory does not add up"),
        (lambda sim: setattr(sim.nodes[0], "loading", 1), "loads do not add up"),
        (lambda sim: setattr(sim.nodes[0], "alive", False), "models on a dead node"),
        (lambda sim: setattr(sim.nodes[0], "capacity_mb", 5), "10 of 5 MB"),
        (lambda sim: setattr(sim.models[A], "in_flight", 2), "slots overdrawn"),
        (lambda sim: setattr(sim.models[A], "in_flight", 0), "slots do not add up"),
        (lambda sim: sim.models[A].queue.append((0, 0)) or freed(sim), "a free slot idles"),
        (lambda sim: setattr(sim.models[B], "in_flight", 1), "slots do not add up"),
    ],
)
def test_accounts_that_do_not_add_up_are_seen(what, message):
    with pytest.raises(Violation, match=message):
        run(broken(what), (0.0, A, 5.0))


def freed(sim):
    model = sim.models[A]
    model.running.clear()
    model.in_flight = 0


def serving_cold(sim):
    sim.models[B].in_flight = 1
    sim.models[B].running.add(7)


def three_loads(sim):
    sim.nodes[0].loading = 3
    for number in range(3):
        spec = replace(sim.models[B].spec, size_mb=0)
        sim.models[ModelId(f"x{number}")] = type(sim.models[B])(spec, state=State.LOADING)


@pytest.mark.parametrize(
    ("what", "message"),
    [(serving_cold, "b serves while cold"), (three_loads, "3 loads at once")],
)
def test_more_that_cannot_be(what, message):
    with pytest.raises(Violation, match=message):
        run(broken(what), (0.0, A, 5.0))


def test_a_request_that_is_served_twice_or_never_is_seen():
    watched = Watched(RULES["lru"](workload((0.0, A, 1.0)), 10))
    simulation = Simulation(workload((0.0, A, 1.0)), 10, watched)
    simulation.run()
    watched.check_end()
    with pytest.raises(Violation, match="request 0 started twice"):
        watched.on_started(0, A)
    with pytest.raises(Violation, match="request 0 ended twice"):
        watched.on_ended(0, A)
    with pytest.raises(Violation, match="request 1 ended before it started"):
        watched.on_ended(1, A)
    with pytest.raises(Violation, match="request 0 ended twice"):
        watched.on_node(0, (), (0,))
    simulation.models[A].state = State.COLD
    with pytest.raises(Violation, match="a serves while not hot"):
        watched.on_started(2, A)


def test_what_is_left_at_the_end_is_seen():
    def played():
        watched = Watched(RULES["lru"](workload((0.0, A, 1.0)), 10))
        simulation = Simulation(workload((0.0, A, 1.0)), 10, watched)
        simulation.run()
        return simulation, watched

    for change, message in (
        (lambda sim, w: w.ended.clear(), "request 0 never ended"),
        (lambda sim, w: setattr(sim.outcomes[0], "ended_s", None), "has no end"),
        (lambda sim, w: setattr(sim.outcomes[0], "started_s", -1.0), "began before it came"),
        (lambda sim, w: sim.outcomes.clear(), "a request was forgotten"),
        (lambda sim, w: setattr(sim.nodes[0], "loading", 1), "a load never ended"),
        (lambda sim, w: setattr(sim.tally, "loads", 7), "loads and unloads do not add up"),
        (lambda sim, w: setattr(sim.tally, "prefetches", 9), "prefetches do not add up"),
    ):
        simulation, watched = played()
        change(simulation, watched)
        with pytest.raises(Violation, match=message):
            watched.check_end()


class Lazy(RuleDriver):
    """Never loads b."""

    def _try_load(self, model):
        return model == A and super()._try_load(model)


def test_who_could_be_served_and_is_not_starves():
    arrivals = [(0.0, A, 1.0), (20.0, B, 1.0)]
    arrivals += [(20.0 + 30.0 * n, A, 1.0) for n in range(1, 10)]
    with pytest.raises(
        Violation, match="request 1 for b waits although it could be loaded"
    ) as seen:
        run(Lazy(), *arrivals)
    assert float(str(seen.value).split()[1]) <= 51.0 + STARVATION_S + 31.0


def test_who_waits_for_busy_models_does_not_starve():
    # a serves without a break: nobody could make room for b
    arrivals = sorted([(float(n), A, 1.0) for n in range(400)] + [(20.0, B, 1.0)])
    run(RULES["lru"](workload(*arrivals), 10), *arrivals)


def test_seldom_checks_see_the_end_all_the_same():
    with pytest.raises(Violation, match="memory does not add up"):
        run(broken(lambda sim: setattr(sim.nodes[0], "used_mb", 3)), (0.0, A, 5.0), every=10_000)


class TestPlans:
    def world(self, **status):
        fields = {"residency": Residency.HOT, "footprint_bytes": 10 * MIB, **status}
        return WorldSnapshot(
            taken_at_s=5.0,
            mode=Mode.ACTIVE,
            nodes={NODE: NodeStatus(node=NODE, alive=True, memory_total_bytes=15 * MIB)},
            models={
                A: ModelStatus(model=A, node=NODE, **fields),
                B: ModelStatus(model=B, node=NODE, footprint_bytes=10 * MIB),
            },
        )

    def unload(self, reason=Reason.LEAST_RECENTLY_USED):
        cause = UnloadCause.EVICTED
        return UnloadModel(action_id="a1", model=A, node=NODE, cause=cause, reason=reason)

    def load(self):
        cause = LoadCause.DEMAND
        return LoadModel(action_id="a2", model=B, node=NODE, cause=cause, reason=Reason.DEMAND)

    def decision(self, action, evidence=(("waiting", 1),)):
        return Decision(
            policy="p",
            subject=action.model,
            outcome=Outcome.CHANGE,
            reason=action.reason,
            evidence=evidence,
        )

    def result(self, *actions, decisions=None, next_tick_at_s=6.0):
        told = tuple(self.decision(action) for action in actions)
        return PlanResult(
            plan=Plan(
                plan_id="p1",
                made_at_s=5.0,
                based_on=0,
                mode=Mode.ACTIVE,
                actions=actions,
                decisions=told if decisions is None else decisions,
            ),
            state=PlannerState(),
            next_tick_at_s=next_tick_at_s,
        )

    def test_one_that_makes_room_and_says_why_is_right(self):
        check_plan(self.world(), self.result(self.unload(), self.load()))

    @pytest.mark.parametrize(
        ("status", "message"),
        [
            ({"in_flight": 1}, "a is evicted while it serves"),
            ({"waiting": 1}, "a is evicted while waited for"),
            ({"pinned": True}, "a is evicted though pinned"),
        ],
    )
    def test_a_victim_is_free_to_go(self, status, message):
        with pytest.raises(Violation, match=message):
            check_plan(self.world(**status), self.result(self.unload()))

    def test_a_ghost_may_be_cleared_whoever_waits(self):
        check_plan(self.world(in_flight=1, waiting=1), self.result(self.unload(Reason.GHOST)))

    def test_what_is_loaded_fits(self):
        with pytest.raises(Violation, match=f"{20 * MIB} of {15 * MIB} bytes"):
            check_plan(self.world(), self.result(self.load()))

    def test_nothing_is_said_of_a_node_whose_memory_is_unknown(self):
        world = self.world()
        world = replace(world, nodes={NODE: NodeStatus(node=NODE, alive=True)})
        check_plan(world, self.result(self.load()))

    def test_every_order_has_a_decision_and_every_decision_its_figures(self):
        with pytest.raises(Violation, match="UnloadModel a has no decision"):
            check_plan(self.world(), self.result(self.unload(), decisions=()))
        bare = self.decision(self.unload(), evidence=())
        with pytest.raises(Violation, match="least_recently_used has no figures"):
            check_plan(self.world(), self.result(self.unload(), decisions=(bare,)))

    def test_it_asks_to_be_asked_later(self):
        with pytest.raises(Violation, match="asks to be asked again at 5"):
            check_plan(self.world(), self.result(next_tick_at_s=5.0))


class TestSwarm:
    def test_a_short_one_finds_nothing(self):
        assert swarm(6, seed=2026) == ()

    def test_a_world_depends_on_its_seed_alone(self):
        assert drawn_world(7) == drawn_world(7)
        assert drawn_world(7) != drawn_world(8)

    def test_worlds_are_small_and_differ(self):
        worlds = [drawn_world(seed) for seed in range(100)]
        assert {len(world.setting.faults.changes) > 0 for world in worlds} == {True, False}
        assert {world.setting.nodes for world in worlds} == {1, 2, 3}
        assert all(1 <= len(world.workload.arrivals) <= MAX_REQUESTS for world in worlds)
        assert {world.setting.faults.any for world in worlds} == {True, False}

    def test_all_policies_take_part(self):
        assert set(RULES) < set(swarm_policies())
        assert {name.partition(":")[0] for name in swarm_policies()} >= {"headstart", "gdsf"}

    def test_what_a_planner_does_wrong_is_found(self, monkeypatch):
        def hasty(self, action):
            """Unloads without looking whether the model serves."""
            self._sim._drop(self._sim.models[action.model])
            return True

        monkeypatch.setattr(ProductDriver, "_unload", hasty)
        failures = swarm(3, seed=1, policies=("lru:tick_s=1.0",))
        assert failures
        assert all(failure.policy == "lru:tick_s=1.0" for failure in failures)
        assert failures[0].seed >= 1

    def test_it_tells_how_far_it_is(self):
        told: list[int] = []
        swarm(2, seed=1, policies=("lru",), done=told.append)
        assert told == [1, 2]


def test_the_default_parameters_are_those_of_a_deployment_but_for_the_reserve():
    assert PlannerConfig().reserve_ratio == 0.2
