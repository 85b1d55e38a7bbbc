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
from simulator.checkers import COUNTS_MODELS, Watched
from simulator.product import ProductDriver
from simulator.rules import RULES
from simulator.simulation import Simulation
from simulator.workloads import Arrival, Workload, WorkloadModel

pytestmark = pytest.mark.simulation

CAPACITY_MB = 20
NAMES = [ModelId(name) for name in "abcde"]


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
    watched = Watched(driver)
    simulation = Simulation(workload, CAPACITY_MB, watched, check_memory=not counts_models)
    simulation.run()
    watched.check_end()
    everyone = range(len(workload.arrivals))
    assert watched.started == watched.ended == Counter(everyone)
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
