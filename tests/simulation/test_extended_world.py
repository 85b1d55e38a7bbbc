"""Several nodes and classes of requests; with one node and one class nothing is different."""

from __future__ import annotations

import pytest

from contracts.config import PlannerConfig
from contracts.ids import ModelId
from controller.policies.registry import POLICIES
from simulator.checkers import Watched
from simulator.product import ProductDriver
from simulator.rules import RULES
from simulator.simulation import Simulation
from simulator.workloads import Arrival, Workload, WorkloadModel, drawn_rank, load_workload

pytestmark = pytest.mark.simulation

A, B, C, D = (ModelId(name) for name in "abcd")


def workload(*arrivals, mb=10, parallel=1):
    """Arrivals as (time, model, service time) or with a class; loads take 10 s."""
    ordered = tuple(sorted(Arrival(*one) for one in arrivals))
    models = {
        name: WorkloadModel(model=name, size_mb=mb, load_s=10.0, parallel=parallel, slo_s=2.0)
        for name in sorted({one.model for one in ordered})
    }
    return Workload(name="hand", models=models, arrivals=ordered)


def run(rule, load, mb, nodes):
    simulation = Simulation(
        load, mb, RULES[rule](load, mb), check_memory=rule != "localai-lru", nodes=nodes
    )
    simulation.run()
    return simulation


def waits(simulation):
    return [outcome.wait_s for outcome in simulation.outcomes]


class TestClasses:
    def test_a_slot_goes_to_the_higher_class_then_to_who_came_first(self):
        load = workload(
            (0.0, A, 1.0, 0), (1.0, A, 1.0, 2), (2.0, A, 1.0, 1), (3.0, A, 1.0, 0), (4.0, A, 1.0, 1)
        )
        played = run("lru", load, 10, 1)
        started = [outcome.started_s for outcome in played.outcomes]
        assert started == [10.0, 14.0, 12.0, 11.0, 13.0]

    def test_who_runs_is_not_interrupted(self):
        load = workload((0.0, A, 50.0, 2), (20.0, A, 1.0, 0))
        assert waits(run("lru", load, 10, 1)) == [10.0, 40.0]

    def test_of_a_hundred_names_sixty_are_realtime(self):
        ranks = [drawn_rank(f"m:0:{number}") for number in range(20_000)]
        shares = [ranks.count(rank) / len(ranks) for rank in range(3)]
        assert shares == pytest.approx([0.60, 0.25, 0.15], abs=0.01)

    def test_the_same_requests_have_classes_only_where_asked(self, tmp_path):
        counts = tmp_path / "counts.csv"
        counts.write_text("model,minute,count\na,0,40\nb,3,40\n")
        plain = load_workload("azure-fn", counts)
        classed = load_workload("azure-fn", counts, classes=True)
        assert {a.rank for a in plain.arrivals} == {0}
        assert {a.rank for a in classed.arrivals} == {0, 1, 2}
        assert classed.realtime() == plain
        first = next(a for a in classed.arrivals if a.service_s == plain.arrivals[0].service_s)
        assert first.at_s == plain.arrivals[0].at_s

    def test_a_class_follows_from_model_minute_and_number(self, tmp_path):
        counts = tmp_path / "counts.csv"
        counts.write_text("model,minute,count\na,7,1\n")
        (arrival,) = load_workload("azure-fn", counts, classes=True).arrivals
        assert arrival.rank == drawn_rank("a:7:0")

    def test_where_a_trace_has_no_windows_requests_of_a_model_are_numbered(self, tmp_path):
        plain = tmp_path / "plain.csv"
        plain.write_text("t_s,model,service_s\n1,a,1\n2,b,1\n3,a,1\n")
        ranks = [a.rank for a in load_workload("csv", plain, classes=True).arrivals]
        assert ranks == [drawn_rank("a:0:0"), drawn_rank("b:0:0"), drawn_rank("a:0:1")]


class TestNodes:
    def test_each_node_has_its_memory_and_two_load_slots(self):
        load = workload(*[(0.0, name, 1.0) for name in (A, B, C, D)])
        assert waits(run("lru", load, 20, 1)) == [10.0, 10.0, 21.0, 21.0]
        assert waits(run("lru", load, 20, 2)) == [10.0] * 4

    def test_a_load_goes_where_most_is_free(self):
        played = run("lru", workload((0.0, A, 1.0), (1.0, B, 1.0), (2.0, C, 1.0)), 30, 2)
        assert [played.models[name].node for name in (A, B, C)] == [0, 1, 0]

    def test_it_goes_where_it_fits_before_anything_is_evicted(self):
        big = WorkloadModel(model=B, size_mb=20, load_s=10.0, parallel=1, slo_s=2.0)
        load = workload((0.0, A, 1.0), (20.0, C, 1.0), (40.0, B, 1.0))
        load = Workload(name="hand", models={**load.models, B: big}, arrivals=load.arrivals)
        played = run("lru", load, 25, 2)
        # nowhere does b fit beside another: only one of the two has to go
        assert (played.tally.unloads, played.tally.loads) == (1, 3)

    def test_localai_counts_models_on_each_node(self):
        load = workload(*[(20.0 * n, name, 1.0) for n, name in enumerate((A, B, C, A))])
        assert run("localai-lru", load, 20, 1).tally.unloads == 2
        assert run("localai-lru", load, 20, 2).tally.unloads == 0

    def test_foresight_knows_all_nodes(self):
        load = workload(*[(40.0 * n, (A, B, C)[n % 3], 1.0) for n in range(12)])
        one, two = run("oracle", load, 10, 1), run("oracle", load, 10, 2)
        assert sum(o.cold for o in two.outcomes) <= sum(o.cold for o in one.outcomes) == 1

    def test_time_in_use_counts_each_node_once(self):
        load = workload((0.0, A, 10.0), (0.0, A, 10.0), (0.0, B, 5.0), parallel=2)
        assert run("lru", load, 10, 2).tally.busy_s == 10.0 + 5.0
        assert run("lru", load, 20, 1).tally.busy_s == 10.0

    @pytest.mark.parametrize("policy", sorted(POLICIES))
    def test_the_product_uses_all_of_them(self, policy):
        names = (A, B, C, D)
        load = workload(*[(15.0 * n, names[n % 4], 2.0) for n in range(40)])
        driver = Watched(
            ProductDriver(policy, None, PlannerConfig(policy=policy, reserve_ratio=0.0))
        )
        simulation = Simulation(load, 20, driver, nodes=2)
        simulation.run()
        driver.check_end()
        assert {model.node for model in simulation.models.values()} == {0, 1}
        # four models, room for four
        assert simulation.tally.loads == 4


@pytest.mark.parametrize("rule", sorted(RULES))
def test_one_node_and_one_class_are_the_plain_simulation(rule):
    load = workload(*[(7.0 * n, (A, B, C, D)[n * n % 4], 3.0) for n in range(60)])
    plain = Simulation(load, 25, RULES[rule](load, 25), check_memory=rule != "localai-lru")
    plain.run()
    extended = run(rule, load.realtime(), 25, 1)
    assert waits(extended) == waits(plain)
    assert extended.tally == plain.tally


def test_where_nothing_could_ever_fit_the_roomiest_node_waits():
    # both nodes serve: the load waits, and starts on the first that is free
    load = workload((0.0, A, 30.0), (0.0, B, 50.0), (11.0, C, 1.0))
    played = run("lru", load, 10, 2)
    assert waits(played) == [10.0, 10.0, 29.0 + 10.0]


def test_localai_takes_the_first_node_that_has_an_idle_model():
    load = workload((0.0, A, 100.0), (0.0, B, 5.0), (30.0, C, 1.0))
    played = run("localai-lru", load, 10, 2)
    assert waits(played) == [10.0, 10.0, 10.0]
    assert played.models[C].node == played.models[B].node
