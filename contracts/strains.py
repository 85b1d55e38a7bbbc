"""What a machine has too much of, loads as they were, and a GPU that is handed over."""

from __future__ import annotations

from dataclasses import dataclass

from contracts.ids import ModelId, NodeId
from contracts.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Strain:
    """A figure of a machine that is over its threshold, or was a moment ago.

    ``level`` is smoothed, so that one busy moment is no strain; ``since_s``: when it began.
    """

    reason: Reason
    since_s: float
    level: float
    threshold: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTime:
    """One load that was measured, beside what had been expected of it (None: nothing)."""

    model: ModelId
    node: NodeId
    ended_at_s: float
    load_s: float
    expected_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuYield:
    """Somebody wants the GPU for something else.

    Attributes
    ----------
    since_s, until_s : float
        From when, and until when (None: until it is taken back).
    keep_bytes : int
        What our models may go on holding, on each node.
    note : str
        What for, in the words of who asked.
    """

    since_s: float
    until_s: float | None = None
    keep_bytes: int = 0
    note: str = ""

    def holds(self, now_s: float) -> bool:
        """Whether it is not over."""
        return self.until_s is None or now_s < self.until_s
