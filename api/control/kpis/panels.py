"""The six panels: what machines, queues, loads and decisions did over time. No clock, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from api.control.kpis.rings import Ring
from api.control.kpis.spread import Spread
from contracts.events import PriorityClass
from contracts.ids import NodeId
from contracts.readings import ProbeReading
from contracts.world import QueueStatus

MINUTE_S = 60.0
QUARTER_S = 900.0
_MINUTES = 361
_QUARTERS = 673
_MOST_NODES = 64
MAX_GAP_S = 60.0
"""A machine that was silent for longer used power that nobody measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel.

    Attributes
    ----------
    threshold : float or None
        In the unit of its values: what is above it is drawn to attention.
    series : tuple of str
        What is drawn in it; keys of ``Sample``.
    """

    panel_id: str
    title: str
    unit: str
    threshold: float | None
    series: tuple[str, ...]


PANELS: tuple[Panel, ...] = (
    Panel(
        panel_id="gpu_utilization",
        title="GPU Utilization",
        unit="%",
        threshold=85.0,
        series=("gpu.utilization",),
    ),
    Panel(
        panel_id="vram",
        title="VRAM Usage",
        unit="%",
        threshold=90.0,
        series=("gpu.memory.used",),
    ),
    Panel(
        panel_id="cpu_load",
        title="CPU Load",
        unit="",
        threshold=4.0,
        series=("cpu.load_15min",),
    ),
    Panel(
        panel_id="queues",
        title="Queue Lengths",
        unit="requests",
        threshold=None,
        series=tuple(f"queue.{priority.value}" for priority in PriorityClass),
    ),
    Panel(
        panel_id="load_times",
        title="Model Load Times",
        unit="s",
        threshold=None,
        series=("model.load_duration.p95",),
    ),
    Panel(
        panel_id="decisions",
        title="Scheduling Decisions",
        unit="/s",
        threshold=None,
        series=("scheduler.decisions_per_second",),
    ),
)
"""Titles and thresholds as operators know them; Grafana's have the same."""

NODE_SERIES = ("gpu.utilization", "gpu.memory.used", "cpu.load_15min")
"""Of each node, the worst of all is shown."""


@dataclass(slots=True)
class Cell:
    """One bucket. Means are of what was told; a node that tells nothing is not there."""

    readings: dict[tuple[str, NodeId], tuple[float, int]] = field(default_factory=dict)
    queues: dict[PriorityClass, tuple[int, int]] = field(default_factory=dict)
    loads: Spread = field(default_factory=Spread)
    decisions: int = 0
    seen_s: float = 0.0

    def value(self, name: str) -> float | None:
        """One value of a series; None: nobody told it."""
        if name in NODE_SERIES:
            means = [
                total / count
                for (series, _), (total, count) in self.readings.items()
                if series == name
            ]
            return max(means, default=None)
        if name.startswith("queue."):
            found = self.queues.get(PriorityClass(name.removeprefix("queue.")))
            return None if found is None else found[0] / found[1]
        if name == "model.load_duration.p95":
            return self.loads.quantile(0.95)
        return self.decisions / self.seen_s if self.seen_s else None


class PanelBook:
    """Samples by minute for six hours, and by quarter of an hour for a week.

    ``tells_power``: whether any GPU says what it uses.
    """

    def __init__(self) -> None:
        self._rings = (Ring(MINUTE_S, _MINUTES, Cell), Ring(QUARTER_S, _QUARTERS, Cell))
        self._powers: dict[NodeId, tuple[float, float]] = {}
        self._sampled_s: float | None = None
        self._nodes: set[NodeId] = set()
        self.tells_power = False
        self._energy: Ring[list[float]] = Ring(3600.0, 169, lambda: [0.0])

    def read(self, node: NodeId, reading: ProbeReading, at_s: float) -> float | None:
        """A node's probes told something. The joules it used since; None: it does not tell."""
        self._nodes.add(node)
        if len(self._nodes) > _MOST_NODES:
            self._nodes.discard(node)
            return None
        for name, value in readings_of(reading):
            for cell in self._cells(at_s):
                total, count = cell.readings.get((name, node), (0.0, 0))
                cell.readings[name, node] = (total + value, count + 1)
        return self._take_power(node, reading, at_s)

    def forget(self, node: NodeId) -> None:
        """It has left, and takes nobody's place; what it told stays in the averages."""
        self._nodes.discard(node)
        self._powers.pop(node, None)

    def queued(self, queues: tuple[QueueStatus, ...], at_s: float) -> None:
        """How many wait now; called about once a second, whatever happens."""
        gap_s = 0.0 if self._sampled_s is None else at_s - self._sampled_s
        self._sampled_s = at_s
        for cell in self._cells(at_s):
            if 0.0 < gap_s <= MAX_GAP_S:
                cell.seen_s += gap_s
            for queue in queues:
                total, count = cell.queues.get(queue.priority, (0, 0))
                cell.queues[queue.priority] = (total + queue.waiting, count + 1)

    def decided(self, at_s: float) -> None:
        """Count one decision."""
        for cell in self._cells(at_s):
            cell.decisions += 1

    def load_took(self, load_s: float, at_s: float) -> None:
        """A load has ended."""
        for cell in self._cells(at_s):
            cell.loads.add(load_s)

    def series(
        self, name: str, now_s: float, *, step_s: float, count: int
    ) -> list[tuple[float, float | None]]:
        """When each bucket begins, and the series' value in it, oldest first."""
        ring = self._rings[0 if step_s == MINUTE_S else 1]
        return [
            (begin_s, None if cell is None else cell.value(name))
            for begin_s, cell in ring.series(now_s, count)
        ]

    def energy_of(self, now_s: float, length_s: float) -> float | None:
        """Joules that the GPUs used in the last ``length_s``; None: nobody tells."""
        if not self.tells_power:
            return None
        return sum(cell[0] for cell in self._energy.over(now_s, length_s))

    def _take_power(self, node: NodeId, reading: ProbeReading, at_s: float) -> float | None:
        # A part of a card has no power of its own: it would count the whole card again.
        powers = [
            gpu.power_watts
            for gpu in reading.gpus
            if gpu.power_watts is not None and gpu.parent_uuid is None
        ]
        if not powers:
            return None
        power_w, before = sum(powers), self._powers.get(node)
        self._powers[node] = (at_s, power_w)
        used_j = 0.0
        if before is not None and 0.0 < at_s - before[0] <= MAX_GAP_S:
            used_j = (at_s - before[0]) * (power_w + before[1]) / 2
        self.tells_power = True
        cell = self._energy.at(at_s)
        if cell is not None:
            cell[0] += used_j
        return used_j

    def _cells(self, at_s: float) -> list[Cell]:
        return [cell for ring in self._rings if (cell := ring.at(at_s)) is not None]


def readings_of(reading: ProbeReading) -> list[tuple[str, float]]:
    """What the panels show of a reading, in their units; what is not told is left out."""
    used, total = reading.gpu_memory_used_bytes, reading.gpu_memory_total_bytes
    vram = 100.0 * used / total if used is not None and total else None
    utilization = reading.gpu_utilization_ratio
    values = (
        ("gpu.utilization", None if utilization is None else 100.0 * utilization),
        ("gpu.memory.used", vram),
        ("cpu.load_15min", reading.load_average_15min),
    )
    return [(name, value) for name, value in values if value is not None]
