"""With a predictor that is wrong about everything, the guard leaves the policy for a rule."""

from __future__ import annotations

import pytest

from contracts.config import PlannerConfig
from contracts.forecasts import NEXT_USE_GRID_S, ForecastStatus, ModelForecast, NextUse
from contracts.ids import ModelId
from simulator.comparison import compare
from simulator.product import ProductDriver
from simulator.simulation import Simulation
from simulator.workloads import Arrival, Workload, WorkloadModel

pytestmark = pytest.mark.simulation

CAPACITY_MB = 24_000


class Liar:
    """Who was just used will not be used; who was not used for long will be at once."""

    def __init__(self, names):
        self._last_s = dict.fromkeys(names, -1e9)

    def observe(self, event):
        model = getattr(event, "model", None)
        if type(event).__name__ == "RequestReceived":
            self._last_s[model] = event.at_s

    def tick(self, now_s):
        return tuple(self._lie(name, now_s) for name in self._last_s)

    @property
    def has_renewals(self):
        return False

    def renewals(self, now_s):
        return ()

    def forecast_now(self, model, now_s):
        return self._lie(model, now_s)

    def _lie(self, name, now_s):
        per_s = 1e-6 if now_s - self._last_s[name] < 300.0 else 0.02
        return ModelForecast(
            model=name,
            next_use=NextUse(
                model=name,
                made_at_s=now_s,
                expires_at_s=now_s + 60.0,
                last_arrival_at_s=None,
                cumulative_hazard=tuple(per_s * delay_s for delay_s in NEXT_USE_GRID_S),
                method="lie",
                status=ForecastStatus.READY,
                brier=None,
                floor_brier=None,
            ),
            signals=(),
        )


@pytest.fixture(scope="module")
def sessions():
    """Three of nine models at a time, in turn for ten minutes: what LRU is made for."""
    names = [ModelId(f"m{number}") for number in range(9)]
    models = {
        name: WorkloadModel(model=name, size_mb=8_000, load_s=12.0, parallel=4, slo_s=2.0)
        for name in names
    }
    arrivals = tuple(
        Arrival(20.0 * number, names[(number // 30 % 3) * 3 + number % 3], 2.0)
        for number in range(1500)
    )
    return Workload(name="sessions", models=models, arrivals=arrivals)


def in_time(workload, *, guard):
    config = PlannerConfig(reserve_ratio=0.0, guard=guard)
    driver = ProductDriver("headstart", Liar(workload.models), config)
    simulation = Simulation(workload, CAPACITY_MB, driver)
    simulation.run()
    waits = [outcome.wait_s for outcome in simulation.outcomes]
    return sum(wait_s <= 2.0 for wait_s in waits) / len(waits)


def test_lies_cost_most_of_what_lru_has_and_the_guard_gets_it_back(sessions):
    lru = compare("lru", sessions, CAPACITY_MB).slo
    unguarded = in_time(sessions, guard=False)
    guarded = in_time(sessions, guard=True)
    assert unguarded < lru - 0.3
    assert guarded > lru - 0.15
