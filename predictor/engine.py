"""From events to forecasts, without a clock: the same events give the same forecasts."""

from __future__ import annotations

import math
from collections import OrderedDict

import numpy as np

from contracts.config import PredictorConfig
from contracts.events import AnyEvent, RequestReceived
from contracts.forecasts import ForecastStatus, ModelForecast, NextUse
from contracts.ids import ModelId
from predictor.models.gap_hazard import Floats
from predictor.models.next_use import NextUseForecaster

_FIRST_ROWS = 64
_KNOWN_EVENT_IDS = 65_536
"""Event ids kept to tell a doubled one: minutes of a busy gateway's traffic."""
_READY_GAPS = 3.0
"""From here a model's own gaps outweigh the population's."""


class PredictorEngine:
    """Learns from every event and says what comes next; time is what it is told.

    Parameters
    ----------
    config : PredictorConfig
    """

    def __init__(self, config: PredictorConfig) -> None:
        self._config = config
        self._rows: OrderedDict[ModelId, int] = OrderedDict()
        self._room = min(_FIRST_ROWS, config.max_models)
        self._next_use = NextUseForecaster(self._room)
        self._event_ids: OrderedDict[str, None] = OrderedDict()
        self._due_s: float | None = None
        self.forgotten = 0
        """Models that were dropped because there were more than ``max_models``."""
        self.doubled = 0
        """Events that had been seen before."""
        self.rejected = 0
        """Events whose time is not a finite number."""

    @property
    def models(self) -> tuple[ModelId, ...]:
        """The models it knows, longest unseen first."""
        return tuple(self._rows)

    def observe(self, event: AnyEvent) -> None:
        """Take in one event; doubled ones are counted once."""
        if not math.isfinite(event.at_s):
            self.rejected += 1
            return
        if event.event_id in self._event_ids:
            self.doubled += 1
            return
        self._event_ids[event.event_id] = None
        if len(self._event_ids) > _KNOWN_EVENT_IDS:
            self._event_ids.popitem(last=False)
        if isinstance(event, RequestReceived) and event.model is not None:
            self._next_use.arrive(self._row(event.model), event.at_s)

    def tick(self, now_s: float) -> tuple[ModelForecast, ...]:
        """All forecasts, when they are due (every ``publish_s``), else none."""
        due_s = self._due_s
        if due_s is not None and now_s < due_s <= now_s + self._config.publish_s:
            return ()
        self._due_s = now_s + self._config.publish_s
        if not self._rows:
            return ()
        rows = np.fromiter(self._rows.values(), dtype=np.intp, count=len(self._rows))
        self._next_use.refresh(rows)
        curves = self._next_use.curves(rows, now_s)
        return tuple(
            ModelForecast(
                model=model,
                next_use=self._as_next_use(model, int(rows[i]), now_s, curves[i]),
                signals=(),
            )
            for i, model in enumerate(self._rows)
        )

    def next_use(self, model: ModelId, now_s: float) -> NextUse | None:
        """The curve of one model as of now; None for one without a request so far."""
        row = self._rows.get(model)
        if row is None:
            return None
        curve = self._next_use.curves(np.array([row], dtype=np.intp), now_s)[0]
        return self._as_next_use(model, row, now_s, curve)

    def forecast_now(self, model: ModelId, now_s: float) -> ModelForecast | None:
        """Everything about one model as of now; None for one without a request so far."""
        next_use = self.next_use(model, now_s)
        if next_use is None:
            return None
        return ModelForecast(model=model, next_use=next_use, signals=())

    def _row(self, model: ModelId) -> int:
        row = self._rows.get(model)
        if row is not None:
            self._rows.move_to_end(model)
            return row
        if len(self._rows) >= self._config.max_models:
            _, row = self._rows.popitem(last=False)
            self._next_use.clear(row)
            self.forgotten += 1
        else:
            row = len(self._rows)
        if row >= self._room:
            self._room = min(2 * self._room, self._config.max_models)
            self._next_use.grow(self._room)
        self._rows[model] = row
        return row

    def _as_next_use(self, model: ModelId, row: int, now_s: float, curve: Floats) -> NextUse:
        ready = self._next_use.gaps(row) >= _READY_GAPS
        return NextUse(
            model=model,
            made_at_s=now_s,
            expires_at_s=now_s + self._config.expires_s,
            last_arrival_at_s=self._next_use.last_arrival_s(row),
            cumulative_hazard=tuple(curve.tolist()),
            method=self._next_use.method,
            status=ForecastStatus.READY if ready else ForecastStatus.WARMING_UP,
            brier=None,
            floor_brier=None,
        )
