"""What background work may take: published by the controller, obeyed by workers."""

from __future__ import annotations

from dataclasses import dataclass

from contracts.events import PriorityClass
from contracts.ids import ModelId
from contracts.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassLimits:
    """How much one class may run until ``valid_until_s``. Expired: one request, no loads.

    Attributes
    ----------
    slots : int
        Requests at once, over all workers.
    loadable : tuple of ModelId
        Cold models that may be loaded for it: nothing that people use would have to go.
    """

    priority: PriorityClass
    slots: int
    loadable: tuple[ModelId, ...]
    valid_until_s: float
    reason: Reason
