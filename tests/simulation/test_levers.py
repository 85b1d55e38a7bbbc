"""Each part of the product can be left out by name, to see what it is worth."""

from __future__ import annotations

import pytest

from contracts.errors import Invalid
from contracts.ids import ModelId
from simulator.comparison import compare
from simulator.workloads import Arrival, Workload, WorkloadModel

pytestmark = pytest.mark.simulation


@pytest.fixture(scope="module")
def jobs():
    names = [ModelId(f"job{number}") for number in range(4)]
    models = {
        name: WorkloadModel(model=name, size_mb=8_000, load_s=10.0, parallel=4, slo_s=2.0)
        for name in names
    }
    arrivals = tuple(
        Arrival(300.0 * turn + 70.0 * number, name, 2.0)
        for turn in range(12)
        for number, name in enumerate(names)
    )
    return Workload(name="jobs", models=models, arrivals=arrivals)


@pytest.mark.parametrize(
    "lever",
    [
        "prefetch=false",
        "whole_sets=false",
        "just_in_time=false",
        "guard=false",
        "prefetch_margin=1",
        "without=pool",
        "without=following+rates:prefetch_waste_target=0.5",
    ],
)
def test_a_lever_can_be_pulled(jobs, lever):
    row = compare(f"headstart:{lever}", jobs, 20_000)
    assert row.n == 48
    assert (row.prefetches == 0) == (lever == "prefetch=false")


def test_an_expert_that_does_not_exist_is_refused(jobs):
    with pytest.raises(Invalid, match="no expert 'tarot'"):
        compare("headstart:without=tarot", jobs, 20_000)
