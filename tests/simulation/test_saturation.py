"""Full load: the drawn traffic, and figures that can be worked out by hand."""

from __future__ import annotations

import pytest

from contracts.ids import ModelId
from simulator.comparison import Setting, play
from simulator.drawn_traffic import drawn_models, mixed_traffic
from simulator.rules import RULES
from simulator.saturation import TIME_LIMIT_S, in_use_s, knee_traffic, saturation_row
from simulator.simulation import Simulation
from simulator.workloads import Arrival, Workload, WorkloadModel

pytestmark = pytest.mark.simulation

A, B = ModelId("a"), ModelId("b")


def run(*arrivals, mb=10, nodes=1):
    models = {
        name: WorkloadModel(model=name, size_mb=10, load_s=10.0, parallel=2, slo_s=2.0)
        for name in (A, B)
    }
    load = Workload(
        name="hand", models=models, arrivals=tuple(sorted(Arrival(*one) for one in arrivals))
    )
    simulation = Simulation(load, mb, RULES["lru"](load, mb), nodes=nodes)
    simulation.run()
    return simulation


def test_what_ends_after_the_last_arrival_is_not_done():
    # served 10..15, 20..25, 100..105: the last one comes at 100
    row = saturation_row("lru", run((0.0, A, 5.0), (20.0, A, 5.0), (100.0, A, 5.0)))
    assert row.throughput_per_s == pytest.approx(2 / 100)
    assert row.gpu_in_use == pytest.approx(10 / 100)
    assert (row.n, row.loads, row.policy) == (3, 1, "lru")


def test_who_waited_longer_than_its_class_may_counts_as_refused():
    arrivals = [(0.0, A, 40.0, 0), (1.0, B, 1.0, 0), (2.0, B, 1.0, 1), (200.0, A, 1.0, 0)]
    row = saturation_row("lru", run(*arrivals))
    # b waits for a to end: 59 s are too long for realtime, and not for batch
    assert TIME_LIMIT_S == (30.0, 120.0, 600.0)
    assert row.throughput_per_s == pytest.approx(2 / 200)
    assert row.realtime_p95_wait_s == pytest.approx(59.0)
    # a serves from 10 to 50 in time, b's two from 60 on: one too late, one in time
    assert row.gpu_in_use == pytest.approx(41.0 / 200)
    assert row.gpu_in_use_in_time == pytest.approx(41.0 / 200)


def test_time_in_use_counts_overlaps_once_and_each_node_for_itself():
    simulation = run((0.0, A, 10.0), (0.0, A, 10.0), (0.0, B, 5.0), (40.0, A, 1.0), nodes=2)
    assert in_use_s(simulation.outcomes, 0.0, 40.0) == pytest.approx(10.0 + 5.0)
    assert in_use_s(simulation.outcomes, 0.0, 12.0) == pytest.approx(2.0 + 2.0)


def test_the_traffic_has_its_rate_and_its_classes():
    traffic = knee_traffic(seed=3, per_s=1.0, span_s=20_000.0)
    assert len(traffic.arrivals) / 20_000.0 == pytest.approx(1.0, rel=0.1)
    assert {arrival.rank for arrival in traffic.arrivals} == {0, 1, 2}
    assert traffic == knee_traffic(seed=3, per_s=1.0, span_s=20_000.0)
    assert traffic != knee_traffic(seed=4, per_s=1.0, span_s=20_000.0)


def test_looking_at_bytes_serves_more_than_counting_models():
    traffic = knee_traffic(seed=1, models=60, per_s=0.6, span_s=1800.0)
    setting = Setting(capacity_mb=24_000, turns=True)
    counted, sized = (
        saturation_row(name, play(name, traffic, setting)) for name in ("localai-lru", "lru")
    )
    assert sized.throughput_per_s > counted.throughput_per_s
    assert sized.realtime_p95_wait_s < counted.realtime_p95_wait_s


def test_mixed_traffic_asks_for_every_model():
    traffic = mixed_traffic(50, seed=1, span_s=3600.0, per_s=0.5)
    assert {arrival.model for arrival in traffic.arrivals} == set(drawn_models(50))
    assert traffic == mixed_traffic(50, seed=1, span_s=3600.0, per_s=0.5)
