"""Names that callers made up: nothing is kept of a model that nobody has. No clock, no I/O."""

from __future__ import annotations

from collections import OrderedDict

from contracts.events import (
    AnyEvent,
    FirstTokenSent,
    ModelLoaded,
    RequestCompleted,
    RequestFailed,
)
from contracts.ids import ModelId

_NOT_FOUND = 404


class InventedNames:
    """Knows by the events which models have ever worked.

    Each caller can name another model with every request. LocalAI answers 404, and what was
    begun for the name (rings of a day, bands of forecasts) would push out what is known of
    models that are real but rare.

    Parameters
    ----------
    max_models : int
        Models that have worked; beyond it the one that did so longest ago counts as new.
    """

    def __init__(self, *, max_models: int = 5000) -> None:
        self._max_models = max_models
        self._worked: OrderedDict[ModelId, None] = OrderedDict()

    def observe(self, event: AnyEvent) -> ModelId | None:
        """The name that this event shows to be made up; None: it shows none."""
        match event:
            case FirstTokenSent(model=model) | ModelLoaded(model=model):
                self._works(model)
            case RequestCompleted(model=model, status=status) if status < 400:
                self._works(model)
            case (
                RequestFailed(model=model, status=status)
                | RequestCompleted(model=model, status=status)
            ) if status == _NOT_FOUND and model not in self._worked:
                return model
            case _:
                pass
        return None

    def _works(self, model: ModelId | None) -> None:
        if model is None:
            return
        self._worked[model] = None
        self._worked.move_to_end(model)
        if len(self._worked) > self._max_models:
            self._worked.popitem(last=False)
