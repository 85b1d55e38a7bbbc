"""What goes wrong in a simulated run, drawn from a seed: the same seed, the same faults.

Loads that fail, loads that lie (LocalAI says loaded, the process is dead), memory that another
program takes, nodes that go and come back, clocks that step, events that come late or twice.
Drawn by CRC-32 of names, as the workloads are, so that nothing depends on a generator's state.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from simulator.workloads import drawn_ratio


class LoadFault(Enum):
    """How a load ends."""

    NONE = "loaded"
    FAILS = "failed"
    LIES = "lied"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """From ``at_s`` on (after the first request) a node is so."""

    at_s: float
    node: int
    alive: bool = True
    others_mb: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStep:
    """From ``at_s`` on the gateway's clock is off by ``offset_s``."""

    at_s: float
    offset_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """All that goes wrong in one run. Ratios are shares of loads and of request events."""

    seed: int = 0
    failing_ratio: float = 0.0
    lying_ratio: float = 0.0
    cooldown_s: float = 10.0
    late_ratio: float = 0.0
    late_s: float = 3.0
    doubled_ratio: float = 0.0
    changes: tuple[NodeChange, ...] = ()
    clock_steps: tuple[ClockStep, ...] = ()

    @property
    def any(self) -> bool:
        """Whether anything may go wrong at all."""
        return bool(
            self.failing_ratio
            or self.lying_ratio
            or self.late_ratio
            or self.doubled_ratio
            or self.changes
            or self.clock_steps
        )

    @property
    def node_changes(self) -> tuple[tuple[float, int], ...]:
        """(time, number) of each change of a node."""
        return tuple((change.at_s, number) for number, change in enumerate(self.changes))

    def load_fault(self, number: int) -> LoadFault:
        """How the load of that number (from 1) ends."""
        if not self.failing_ratio and not self.lying_ratio:
            return LoadFault.NONE
        drawn = drawn_ratio(f"{self.seed}:load:{number}")
        if drawn < self.failing_ratio:
            return LoadFault.FAILS
        if drawn < self.failing_ratio + self.lying_ratio:
            return LoadFault.LIES
        return LoadFault.NONE

    def failed_after(self, number: int) -> float:
        """Share of the load time after which a failing load gives up."""
        return drawn_ratio(f"{self.seed}:gives-up:{number}")

    def event_delay_s(self, number: int) -> float:
        """How late the event of that number comes; 0: at once."""
        if not self.late_ratio or drawn_ratio(f"{self.seed}:late:{number}") >= self.late_ratio:
            return 0.0
        return self.late_s * drawn_ratio(f"{self.seed}:by:{number}")

    def is_doubled(self, number: int) -> bool:
        """Whether the event of that number comes twice."""
        return bool(self.doubled_ratio) and (
            drawn_ratio(f"{self.seed}:twice:{number}") < self.doubled_ratio
        )

    def clock_offset_s(self, elapsed_s: float) -> float:
        """How far the gateway's clock is off, so long after the first request."""
        offset_s = 0.0
        for step in self.clock_steps:
            if elapsed_s >= step.at_s:
                offset_s = step.offset_s
        return offset_s


NO_FAULTS = Faults()


def drawn_faults(seed: int, *, span_s: float, nodes: int, spare_mb: int) -> Faults:
    """Faults for a run of about ``span_s``: each kind in about half of all seeds.

    Parameters
    ----------
    spare_mb : int
        Memory of a node beyond its largest model: another program takes at most so much, so
        that every model still fits at last.
    """

    def ratio(what: str) -> float:
        return drawn_ratio(f"{seed}:{what}")

    changes: list[NodeChange] = []
    for node in range(nodes):
        if ratio(f"others:{node}") < 0.5:
            begin_s = span_s * ratio(f"others-from:{node}")
            taken_mb = int(spare_mb * ratio(f"others-mb:{node}"))
            end_s = begin_s + 0.3 * span_s * ratio(f"others-for:{node}")
            changes += [
                NodeChange(at_s=begin_s, node=node, others_mb=taken_mb),
                NodeChange(at_s=end_s, node=node),
            ]
        elif ratio(f"goes:{node}") < 0.5:
            begin_s = span_s * ratio(f"goes-from:{node}")
            end_s = begin_s + 0.1 * span_s * ratio(f"goes-for:{node}") + 1.0
            changes += [
                NodeChange(at_s=begin_s, node=node, alive=False),
                NodeChange(at_s=end_s, node=node),
            ]
    steps: tuple[ClockStep, ...] = ()
    if ratio("clock") < 0.3:
        steps = (
            ClockStep(at_s=span_s * ratio("clock-at"), offset_s=40.0 * (ratio("clock-by") - 0.5)),
        )
    return Faults(
        seed=seed,
        failing_ratio=0.2 * ratio("failing") if ratio("fails") < 0.5 else 0.0,
        lying_ratio=0.1 * ratio("lying") if ratio("lies") < 0.5 else 0.0,
        late_ratio=0.2 * ratio("late") if ratio("lates") < 0.5 else 0.0,
        doubled_ratio=0.2 * ratio("doubled") if ratio("doubles") < 0.5 else 0.0,
        changes=tuple(sorted(changes, key=lambda change: (change.at_s, change.node))),
        clock_steps=steps,
    )
