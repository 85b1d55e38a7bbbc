"""Panels: rows of readings and figures over time."""

from __future__ import annotations

import pytest

from api.control.kpis import panels as panels_module
from api.control.kpis.panels import MINUTE_S, PANELS, QUARTER_S, PanelBook
from contracts.ids import NodeId
from contracts.readings import ProbeReading
from contracts.world import QueueStatus
from tests.kpi_events import (
    HIGH,
    NODE,
    reading,
)


class TestPanels:
    def test_there_are_six_with_their_thresholds(self):
        assert [(panel.title, panel.threshold) for panel in PANELS] == [
            ("GPU Utilization", 85.0), ("VRAM Usage", 90.0), ("CPU Load", 4.0),
            ("Queue Lengths", None), ("Model Load Times", None), ("Scheduling Decisions", None),
        ]  # fmt: skip

    def value(self, book: PanelBook, name: str, now_s: float = 59.0) -> float | None:
        return book.series(name, now_s, step_s=MINUTE_S, count=1)[0][1]

    def test_of_several_nodes_the_worst_is_shown_and_means_are_of_what_was_told(self):
        book = PanelBook()
        book.read(NODE, reading(0.0), 0.0)
        book.read(NODE, ProbeReading(at_s=5.0, gpu_utilization_ratio=0.7), 5.0)
        book.read(NodeId("m"), ProbeReading(at_s=5.0, gpu_utilization_ratio=0.1), 5.0)
        assert self.value(book, "gpu.utilization") == pytest.approx(60.0)
        assert self.value(book, "gpu.memory.used") == 90.0
        assert self.value(book, "cpu.load_15min") == 2.0
        assert self.value(book, "gpu.utilization", 200.0) is None
        quarter = book.series("gpu.utilization", 59.0, step_s=QUARTER_S, count=2)
        assert [begin for begin, _ in quarter] == [-900.0, 0.0]

    def test_queues_decisions_and_loads(self):
        book = PanelBook()
        for at_s, waiting in ((0.0, 2), (1.0, 4)):
            queues = (QueueStatus(priority=HIGH, waiting=waiting),)
            book.queued(queues, at_s)
        book.decided(1.0)
        book.load_took(3.0, 1.0)
        assert self.value(book, "queue.realtime") == 3.0
        assert self.value(book, "queue.batch") is None
        assert self.value(book, "scheduler.decisions_per_second") == 1.0
        assert self.value(book, "model.load_duration.p95") == pytest.approx(3.0, rel=0.06)
        book.queued((), 500.0)  # nobody looked for a while: it is not known how many came
        assert self.value(book, "scheduler.decisions_per_second", 500.0) is None

    def test_energy_is_power_over_the_time_that_it_was_watched(self):
        book = PanelBook()
        assert book.energy_of(0.0, 3600.0) is None
        assert book.read(NODE, reading(0.0), 0.0) is None
        assert book.read(NODE, reading(0.0, power_w=100.0), 0.0) == 0.0
        assert book.read(NODE, reading(10.0, power_w=200.0), 10.0) == 1500.0
        assert book.read(NODE, reading(900.0, power_w=200.0), 900.0) == 0.0
        assert book.energy_of(900.0, 3600.0) == 1500.0
        old_s = 900.0 + 8 * 86_400.0
        book.read(NODE, reading(old_s, power_w=1.0), old_s)
        assert book.read(NODE, reading(901.0, power_w=1.0), 901.0) == 0.0
        assert book.energy_of(old_s, 3600.0) == 0.0

    def test_nodes_are_bounded(self, monkeypatch):
        monkeypatch.setattr(panels_module, "_MOST_NODES", 1)
        book = PanelBook()
        book.read(NODE, ProbeReading(at_s=0.0, load_average_15min=1.0), 0.0)
        assert book.read(NodeId("m"), reading(0.0, power_w=1.0), 0.0) is None
        assert self.value(book, "cpu.load_15min") == 1.0
        book.forget(NODE)  # it has left, and another one comes
        assert book.read(NodeId("m"), reading(0.0, power_w=1.0), 0.0) == 0.0
