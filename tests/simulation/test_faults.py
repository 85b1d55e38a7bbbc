"""What goes wrong in a run: by hand, and drawn."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from contracts.config import PlannerConfig
from contracts.ids import ModelId
from contracts.world import Residency
from simulator.checkers import Watched, check_plan
from simulator.cluster_state import State
from simulator.faults import (
    NO_FAULTS,
    ClockStep,
    Faults,
    LoadFault,
    NodeChange,
    drawn_faults,
)
from simulator.product import ProductDriver
from simulator.rules import RULES
from simulator.simulation import Simulation, Stuck
from simulator.workloads import Arrival, Workload, WorkloadModel

pytestmark = pytest.mark.simulation

A, B = ModelId("a"), ModelId("b")
FAILS = Faults(failing_ratio=1.0)


def workload(*arrivals):
    ordered = tuple(sorted(Arrival(*one) for one in arrivals))
    models = {
        name: WorkloadModel(model=name, size_mb=10, load_s=10.0, parallel=1, slo_s=2.0)
        for name in sorted({one.model for one in ordered})
    }
    return Workload(name="hand", models=models, arrivals=ordered)


def lru(load, mb):
    return RULES["lru"](load, mb)


def product(load, mb, engine=None):
    config = PlannerConfig(policy="headstart", reserve_ratio=0.0)
    return ProductDriver("headstart", engine, config, on_plan=check_plan)


BOTH = pytest.mark.parametrize("make", [lru, product])


def run(make, load, mb, faults, nodes=1):
    driver = make(load, mb)
    watched = Watched(driver)
    simulation = Simulation(load, mb, watched, faults=faults, nodes=nodes)
    simulation.run()
    watched.check_end()
    return simulation, driver


@dataclass(frozen=True, kw_only=True)
class FirstLoads(Faults):
    """The first loads end as said, the others well."""

    ends: tuple[LoadFault, ...] = ()

    @classmethod
    def of(cls, *ends):
        return cls(failing_ratio=0.5, ends=ends)

    def load_fault(self, number):
        return self.ends[number - 1] if number <= len(self.ends) else LoadFault.NONE

    def failed_after(self, number):
        return 0.5


class TestLoads:
    @BOTH
    def test_one_that_fails_is_tried_again_when_localai_has_cooled_down(self, make):
        load = workload((0.0, A, 1.0))
        played, _ = run(make, load, 10, FirstLoads.of(LoadFault.FAILS))
        # 5 s until it gives up, 10 s of cooling down, 10 s for the second
        assert [o.wait_s for o in played.outcomes] == [25.0]
        assert (played.tally.loads, played.tally.failed_loads) == (2, 1)

    @BOTH
    def test_others_do_not_wait_for_its_cool_down(self, make):
        load = workload((0.0, A, 1.0), (6.0, B, 1.0))
        played, _ = run(make, load, 10, FirstLoads.of(LoadFault.FAILS))
        assert played.outcomes[1].wait_s == 10.0

    def test_a_lie_is_found_out_by_who_waits(self):
        load = workload((0.0, A, 1.0))
        played, _ = run(product, load, 10, FirstLoads.of(LoadFault.LIES))
        assert [o.wait_s for o in played.outcomes] == [20.0]

    def test_a_lie_that_nobody_waits_for_is_found_out_by_the_next_request_or_poll(self):
        class Eager(ProductDriver):
            """Prefetches b at once."""

            def on_loaded(self, model):
                super().on_loaded(model)
                if model == A:
                    self._sim.start_load(B, prefetch=True)

        load = workload((0.0, A, 1.0), (21.0, B, 1.0), (60.0, B, 1.0))
        config = PlannerConfig(policy="headstart", reserve_ratio=0.0)
        driver = Eager("headstart", None, config)
        faults = FirstLoads.of(LoadFault.NONE, LoadFault.LIES)
        simulation = Simulation(load, 30, driver, faults=faults)
        simulation.run()
        assert simulation.outcomes[1].wait_s == 10.0

    def test_a_failed_prefetch_is_no_end_of_the_world(self):
        load = workload((0.0, A, 1.0), (100.0, B, 1.0), (200.0, A, 1.0))
        faults = FirstLoads.of(LoadFault.NONE, LoadFault.FAILS)
        played, _ = run(RULES["oracle"], load, 10, faults)
        assert (played.tally.failed_loads, played.tally.prefetches) == (1, 2)
        assert played.outcomes[0].wait_s == 10.0

    def test_a_request_for_what_cools_down_waits_for_the_end_of_it(self):
        load = workload((0.0, A, 1.0), (100.0, B, 1.0))
        faults = FirstLoads(
            failing_ratio=0.5, cooldown_s=100.0, ends=(LoadFault.NONE, LoadFault.FAILS)
        )
        played, _ = run(RULES["oracle"], load, 10, faults)
        # loaded ahead from 58 s on, given up at 63 s
        assert played.outcomes[1].started_s == 63.0 + 100.0 + 10.0

    @BOTH
    def test_one_that_always_fails_is_seen(self, make):
        with pytest.raises(Stuck):
            run(make, workload((0.0, A, 1.0)), 10, FAILS)


class TestNodes:
    @BOTH
    def test_what_ran_breaks_off_and_what_waits_goes_elsewhere_or_waits(self, make):
        gone = Faults(
            changes=(
                NodeChange(at_s=12.0, node=0, alive=False),
                NodeChange(at_s=40.0, node=0),
            )
        )
        load = workload((0.0, A, 20.0), (11.0, A, 1.0))
        played, _ = run(make, load, 10, gone)
        first, second = played.outcomes
        assert first.failed
        assert first.ended_s == 12.0
        assert not second.failed
        assert 50.0 <= second.started_s <= 56.0
        assert played.tally.lost == 1

    @BOTH
    def test_a_load_on_it_is_lost_with_it(self, make):
        gone = Faults(
            changes=(NodeChange(at_s=5.0, node=0, alive=False), NodeChange(at_s=20.0, node=0))
        )
        played, _ = run(make, workload((0.0, A, 1.0)), 10, gone)
        assert 30.0 <= played.outcomes[0].started_s <= 36.0

    @BOTH
    def test_with_another_node_nobody_waits_for_it(self, make):
        gone = Faults(
            changes=(NodeChange(at_s=12.0, node=0, alive=False), NodeChange(at_s=900.0, node=0))
        )
        load = workload((0.0, A, 1.0), (20.0, A, 1.0))
        played, _ = run(make, load, 10, gone, nodes=2)
        assert played.outcomes[1].wait_s <= 10.0
        assert played.models[A].node in (0, 1)


class TestMemory:
    @BOTH
    def test_what_another_program_takes_is_not_used_meanwhile(self, make):
        taken = Faults(
            changes=(NodeChange(at_s=15.0, node=0, others_mb=15), NodeChange(at_s=200.0, node=0))
        )
        load = workload((0.0, A, 1.0), (30.0, B, 1.0), (60.0, A, 1.0))
        played, _ = run(make, load, 25, taken)
        # b fits only with a gone, and a then only with b gone
        assert played.tally.unloads == 2

    def test_an_order_that_no_longer_fits_is_refused_and_tried_again(self):
        taken = Faults(
            changes=(NodeChange(at_s=11.0, node=0, others_mb=20), NodeChange(at_s=60.0, node=0))
        )
        load = workload((0.0, A, 1.0), (12.0, B, 1.0))
        played, _ = run(product, load, 30, taken)
        assert played.outcomes[1].started_s >= 22.0


class TestEvents:
    def test_late_events_stay_in_their_order(self):
        late = Faults(seed=1, late_ratio=0.5, late_s=8.0)
        load = workload(*[(30.0 * n, (A, B)[n % 2], 2.0) for n in range(20)])
        played, driver = run(product, load, 10, late)
        assert all(o.ended_s is not None for o in played.outcomes)
        # what was told by the end of the run was told in order: nothing is left open but the last
        assert set(driver._world.requests) <= {"18", "19"}

    def test_doubled_events_count_once(self):
        twice = Faults(seed=1, doubled_ratio=1.0)
        load = workload(*[(30.0 * n, (A, B)[n % 2], 2.0) for n in range(6)])
        _, driver = run(product, load, 10, twice)
        world = driver._world
        assert not world.requests
        assert all(status.waiting == status.in_flight == 0 for status in world.models.values())

    def test_a_gateways_clock_may_step(self):
        steps = Faults(clock_steps=(ClockStep(at_s=50.0, offset_s=-20.0),))
        load = workload(*[(30.0 * n, (A, B)[n % 2], 2.0) for n in range(6)])
        played, _ = run(product, load, 10, steps)
        assert steps.clock_offset_s(49.0) == 0.0
        assert steps.clock_offset_s(51.0) == -20.0
        assert [o.wait_s for o in played.outcomes] == [10.0] * 6

    def test_an_order_that_came_too_late_is_given_up(self):
        # the end of a's request is known late, its beginning too: the planner believes it idle
        late = Faults(seed=3, late_ratio=0.9, late_s=20.0)
        load = workload(*[(4.0 * n, (A, B)[n % 2], 3.0) for n in range(40)])
        played, driver = run(product, load, 10, late)
        assert {o.failed for o in played.outcomes} == {False}
        assert driver._world.models[A].residency in Residency


def test_nothing_goes_wrong_where_nothing_is_drawn():
    assert not NO_FAULTS.any
    assert NO_FAULTS.load_fault(1) is LoadFault.NONE
    assert NO_FAULTS.event_delay_s(1) == 0.0
    assert not NO_FAULTS.is_doubled(1)
    assert NO_FAULTS.clock_offset_s(1.0) == 0.0


def test_the_same_seed_draws_the_same():
    def drawn(seed):
        return drawn_faults(seed, span_s=1000.0, nodes=3, spare_mb=500)

    assert drawn(5) == drawn(5)
    all_of_them = [drawn(seed) for seed in range(200)]
    assert any(faults.any for faults in all_of_them)
    for faults in all_of_them:
        assert 0.0 <= faults.failing_ratio <= 0.2
        assert list(faults.changes) == sorted(faults.changes, key=lambda c: (c.at_s, c.node))
        assert all(change.others_mb <= 500 for change in faults.changes)
        # what goes comes back, what is taken is given back
        for node in range(3):
            last = [change for change in faults.changes if change.node == node][-1:]
            assert all(change.alive and not change.others_mb for change in last)
    assert any(faults.clock_steps for faults in all_of_them)


def test_loads_end_in_each_way_about_as_often_as_drawn():
    faults = Faults(seed=9, failing_ratio=0.2, lying_ratio=0.1)
    ends = [faults.load_fault(number) for number in range(5000)]
    shares = {end: ends.count(end) / len(ends) for end in LoadFault}
    assert shares[LoadFault.FAILS] == pytest.approx(0.2, abs=0.02)
    assert shares[LoadFault.LIES] == pytest.approx(0.1, abs=0.02)
    assert 0.0 <= faults.failed_after(7) < 1.0
    assert State.COLD < State.LOADING < State.HOT
