"""Whatever is played by whichever policy: nobody is forgotten, and memory is never overdrawn."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.config import PlannerConfig
from contracts.errors import Invalid
from contracts.ids import ModelId
from controller.policies.registry import POLICIES
from simulator.comparison import COUNTS_MODELS
from simulator.product import ProductDriver
from simulator.rules import RULES
from simulator.cluster_state import State
from simulator.simulation import PARALLEL_LOADS, Driver, Simulation
from simulator.workloads import Arrival, Workload, WorkloadModel

pytestmark = pytest.mark.simulation

CAPACITY_MB = 20
NAMES = [ModelId(name) for name in "abcde"]


class Watched:
    """Passes everything on to a driver and checks the accounts each time."""

    def __init__(self, driver: Driver, *, counts_models: bool) -> None:
        self.name = driver.name
        self.started: Counter[int] = Counter()
        self.ended: Counter[int] = Counter()
        self._driver = driver
        self._counts_models = counts_models

    def begin(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._driver.begin(simulation)

    def on_arrival(self, request: int, model: ModelId) -> None:
        self._driver.on_arrival(request, model)
        self._check()

    def on_started(self, request: int, model: ModelId) -> None:
        assert self._simulation.models[model].state is State.HOT
        self.started[request] += 1
        self._driver.on_started(request, model)

    def on_ended(self, request: int, model: ModelId) -> None:
        self.ended[request] += 1
        self._driver.on_ended(request, model)
        self._check()

    def on_loaded(self, model: ModelId) -> None:
        self._driver.on_loaded(model)
        self._check()

    def on_timer(self, tag: str) -> None:
        self._driver.on_timer(tag)
        self._check()

    def _check(self) -> None:
        sim = self._simulation
        held = [m for m in sim.models.values() if m.state is not State.COLD]
        assert sim.used_mb == sum(m.spec.size_mb for m in held)
        assert sim.used_mb <= sim.capacity_mb or self._counts_models
        loading = sum(m.state is State.LOADING for m in held)
        assert loading == sim.loading <= PARALLEL_LOADS
        for m in sim.models.values():
            assert 0 <= m.in_flight <= m.spec.parallel
            assert not m.in_flight or m.state is State.HOT


@st.composite
def workloads(draw):
    models = {
        name: WorkloadModel(
            model=name,
            size_mb=draw(st.integers(1, CAPACITY_MB)),
            load_s=draw(st.sampled_from([0.5, 3.0, 8.0])),
            parallel=draw(st.integers(1, 2)),
            slo_s=2.0,
        )
        for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True))
    }
    arrivals = draw(
        st.lists(
            st.builds(
                Arrival,
                st.sampled_from([0.0, 1.0, 2.5, 3.0, 8.0, 11.0, 40.0]),
                st.sampled_from(sorted(models)),
                st.sampled_from([0.0, 1.0, 4.0]),
            ),
            min_size=1,
            max_size=20,
        )
    )
    return Workload(name="drawn", models=models, arrivals=tuple(sorted(arrivals)))


def play(workload, driver, *, counts_models=False):
    watched = Watched(driver, counts_models=counts_models)
    simulation = Simulation(workload, CAPACITY_MB, watched, check_memory=not counts_models)
    simulation.run()
    everyone = range(len(workload.arrivals))
    assert watched.started == watched.ended == Counter(everyone)
    assert len(simulation.outcomes) == len(everyone)
    assert all(outcome.wait_s >= 0.0 for outcome in simulation.outcomes)
    assert all(m.state is not State.LOADING for m in simulation.models.values())
    assert simulation.loading == 0
    tally = simulation.tally
    resident = sum(m.state is State.HOT for m in simulation.models.values())
    assert tally.loads == tally.unloads + resident
    assert tally.prefetches_used + tally.prefetches_wasted <= tally.prefetches <= tally.loads
    return simulation


@given(workloads(), st.sampled_from(sorted(RULES)))
def test_rules(workload, name):
    play(workload, RULES[name](workload, CAPACITY_MB), counts_models=name == COUNTS_MODELS)


@settings(max_examples=30)
@given(workloads(), st.sampled_from(sorted(POLICIES)))
def test_the_product_without_a_predictor(workload, name):
    config = PlannerConfig(policy=name, reserve_ratio=0.0)
    play(workload, ProductDriver(name, None, config))


@given(workloads())
def test_clairvoyance_loads_no_more_often_than_looking_back(workload):
    """On one model at a time in memory and equal sizes Belady is optimal in loads."""
    equal = Workload(
        name="equal",
        models={
            name: WorkloadModel(model=name, size_mb=10, load_s=1.0, parallel=9, slo_s=2.0)
            for name in workload.models
        },
        # far enough apart that nothing overlaps
        arrivals=tuple(
            Arrival(10.0 * n, arrival.model, 0.0) for n, arrival in enumerate(workload.arrivals)
        ),
    )
    loads = {name: play(equal, RULES[name](equal, 20)).tally.loads for name in ("belady", "lru")}
    assert loads["belady"] <= loads["lru"]


def test_a_model_that_never_fits_beside_the_reserve_is_refused():
    model = WorkloadModel(model=NAMES[0], size_mb=18, load_s=1.0, parallel=1, slo_s=2.0)
    workload = Workload(
        name="one", models={NAMES[0]: model}, arrivals=(Arrival(0.0, NAMES[0], 1.0),)
    )
    driver = ProductDriver("lru", None, PlannerConfig(policy="lru", reserve_ratio=0.2))
    with pytest.raises(Invalid, match=r"reserve of 20% does not hold a \(18 MB\)"):
        Simulation(workload, CAPACITY_MB, driver).run()
