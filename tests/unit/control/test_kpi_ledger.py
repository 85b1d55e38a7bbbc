"""Counters since the start, and the ledger that feeds every book."""

from __future__ import annotations

from typing import Any

import pytest

from api.control.kpis import counters as counters_module
from api.control.kpis.counters import OTHER, LiveCounters
from api.control.kpis.holding import FINE_S
from api.control.kpis.journeys import Journey
from api.control.kpis.ledger import KpiLedger
from api.control.kpis.panels import MINUTE_S
from contracts.events import (
    NodeObserved,
)
from contracts.ids import RequestId
from contracts.world import ModelStatus, NodeStatus, Residency, WorldSnapshot
from tests.kpi_events import (
    GB,
    HIGH,
    LOW,
    NODE,
    UNRELATED,
    A,
    B,
    done,
    feedback,
    left,
    load_failed,
    loaded,
    reading,
    received,
    sent,
    told,
    unloaded,
)


class TestCounters:
    def test_only_what_happens_from_the_start_is_counted(self):
        counters = LiveCounters()
        ledger = KpiLedger(lambda _: 2.0)
        ledger.counters = counters
        before = (
            loaded(1.0), received("r", 1.0, stream=False), sent("r", 1.0), done("r", 2.0, 1.0),
            received("h", 0.0), received("l", 1.0, A, LOW), sent("l", 2.0), left("h", 2.0),
        )  # fmt: skip
        for event in before:
            ledger.observe(event)
        counters.start_at(10.0)
        for event in before:
            ledger.observe(event)
        assert (counters.judged, counters.loads, counters.violations) == ({}, {}, {})
        for event in (
            loaded(11.0, load_s=2.5), loaded(12.0, load_s=None), load_failed(13.0),
            unloaded(14.0), feedback("r", 1.0), feedback("r", 0.5), feedback("r", 0.0),
            received("s", 20.0, stream=False), sent("s", 20.0), done("s", 21.0, 1.0),
            received("t", 20.0, stream=False), sent("t", 20.0), done("t", 26.0, 6.0),
            received("high", 30.0), received("low", 31.0, A, LOW), sent("low", 32.0),
            left("high", 33.0), received("low2", 34.0, A, LOW), received("high2", 35.0),
            sent("low2", 36.0), UNRELATED,
        ):  # fmt: skip
            ledger.observe(event)
        assert counters.loads == {("demand", "loaded"): 2, ("demand", "failed"): 1}
        assert (counters.unloads, sum(counters.load_buckets), counters.load_sum_s) == (
            {"evicted": 1}, 1, 2.5,
        )  # fmt: skip
        assert counters.load_buckets[2] == 1  # up to three seconds
        assert counters.feedback == {"good": 1, "middling": 1, "bad": 1}
        assert counters.judged == {("a", "realtime", "met"): 1, ("a", "realtime", "missed"): 1}
        assert (counters.violations, counters.aged) == ({"background": 1}, {"background": 1})

    def test_energy_is_counted_by_node(self):
        counters = LiveCounters()
        counters.used_energy(NODE, 5.0, 1.0)
        counters.start_at(10.0)
        for used_j, at_s in ((5.0, 1.0), (None, 11.0), (5.0, 11.0), (7.0, 12.0)):
            counters.used_energy(NODE, used_j, at_s)
        assert counters.energy_j == {NODE: 12.0}

    def test_models_share_a_label_past_the_bound(self, monkeypatch):
        monkeypatch.setattr(counters_module, "MAX_MODELS", 1)
        counters = LiveCounters()
        counters.start_at(0.0)
        for model in (A, B, A):
            counters.ended(
                Journey(
                    request_id=RequestId("r"),
                    model=model,
                    operation="",
                    priority=HIGH,
                    stream=False,
                    received_at_s=0.0,
                    ended_at_s=1.0,
                    met=True,
                )
            )
        assert counters.judged == {("a", "realtime", "met"): 2, (OTHER, "realtime", "met"): 1}


class TestLedger:
    def world(self, *statuses: ModelStatus, **changes: Any) -> WorldSnapshot:
        node = NodeStatus(node=NODE, alive=True, memory_total_bytes=10 * GB, **changes)
        return WorldSnapshot(
            taken_at_s=0.0, nodes={NODE: node}, models={one.model: one for one in statuses}
        )

    def status(self, residency=Residency.HOT, since_s=0.0, **changes: Any) -> ModelStatus:
        values = {"footprint_bytes": 2 * GB, **changes}
        return ModelStatus(
            model=A, node=NODE, residency=residency, residency_since_s=since_s, **values
        )

    def test_the_world_corrects_what_no_event_told(self):
        ledger = KpiLedger(lambda _: 2.0)
        ledger.saw(self.world(self.status(since_s=100.0)), 200.0)
        ledger.saw(self.world(self.status(since_s=100.0)), 300.0)
        held = ledger.holding.held(A, 300.0, 3600.0)
        assert (held.resident_s, held.gpu_s) == (200.0, 40.0)
        ledger.saw(self.world(self.status(Residency.COLD, 400.0)), 500.0)
        ledger.saw(self.world(self.status(Residency.COLD, 400.0)), 600.0)
        assert ledger.holding.held(A, 600.0, 3600.0).resident_s == 300.0

    @pytest.mark.parametrize(
        ("changes", "size"),
        [({"accelerator": "cpu"}, GB), ({}, None)],
    )
    def test_without_a_gpu_or_a_size_no_gpu_is_held(self, changes, size):
        ledger = KpiLedger(lambda _: 2.0)
        ledger.saw(self.world(self.status(footprint_bytes=size), **changes), 100.0)
        assert ledger.holding.held(A, 200.0, 3600.0).gpu_s == 0.0

    def test_events_tell_residency_heat_loads_and_readings(self):
        ledger = KpiLedger(lambda _: 2.0)
        ledger.counters.start_at(0.0)
        observed = NodeObserved(
            **told(30.0), node=NODE, resident=(), busy=(), memory_total_bytes=4 * GB,
            memory_used_bytes=None, model_limit=None, reading=reading(30.0, power_w=10.0),
        )  # fmt: skip
        silent = NodeObserved(
            **told(30.0), node=NODE, resident=(), busy=(), memory_total_bytes=None,
            memory_used_bytes=None, model_limit=None,
        )  # fmt: skip
        for event in (
            observed, silent, received("r", 1.0), received("none", 1.0, None),
            loaded(10.0, size=GB), loaded(15.0, B, load_s=None), unloaded(20.0),
        ):  # fmt: skip
            ledger.observe(event)
        ledger.decided(30.0)
        rows = ledger.holding.strip(59.0, step_s=FINE_S, count=1)
        assert [(row.model, row.arrivals) for row in rows] == [(A, (1,)), (B, (0,))]
        held = ledger.holding.held(A, 59.0, 3600.0)
        assert (held.resident_s, held.gpu_s) == (10.0, 2.5)  # a quarter of its node's memory
        load = ledger.panels.series("model.load_duration.p95", 59.0, step_s=MINUTE_S, count=1)
        assert load[0][1] == pytest.approx(4.0, rel=0.06)
        assert ledger.counters.energy_j == {NODE: 0.0}
        assert set(ledger.forgotten()) == {"open_requests", "traffic", "loads", "holdings"}

    def test_a_budget_is_of_the_week_and_heads_somewhere(self):
        ledger = KpiLedger(lambda _: 2.0)
        for number in range(100):
            name, took_s = f"r{number}", 6.0 if number < 4 else 1.0
            for event in (
                received(name, 0.0, stream=False), sent(name, 0.0), done(name, 10.0, took_s),
            ):  # fmt: skip
                ledger.observe(event)
        found = ledger.budget_of(A, 95.0, 60.0, expected_1h=10.0)
        assert (found.judged, found.missed) == (100, 4)
        assert found.remaining_ratio == pytest.approx(0.2)
