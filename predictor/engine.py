"""From events to forecasts, without a clock: the same events give the same forecasts.

Called event by event and in lock step where it is simulated: ``observe`` what happened, then
``tick``, ``renewals`` or ``forecast_now`` for what is expected. Time is what it is told; when
that goes back, everything later than it is taken as not yet happened.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Mapping

import numpy as np

from contracts.config import PredictorConfig
from contracts.events import (
    AnyEvent,
    FirstTokenSent,
    IntentSignal,
    RequestCompleted,
    RequestFailed,
    RequestReceived,
)
from contracts.forecasts import Forecast, ModelForecast, NextUse, Signal
from contracts.ids import ModelId
from predictor.champion import in_champions_words
from predictor.guards import EventFilter
from predictor.latency_book import LatencyBook
from predictor.models.boosted import METHOD as BOOSTED
from predictor.models.boosted import Challenger
from predictor.models.decayed_rates import DecayedRates
from predictor.models.demand import DemandForecaster
from predictor.models.latency import LatencyForecast
from predictor.models.next_use import NextUseForecaster
from predictor.opinions import MIXTURE, ArrivalOpinions, UseOpinions
from predictor.records import arrival_forecasts, next_use_records
from predictor.steps import grid, steps_between
from predictor.wall_clock import utc_offset_s
from predictor.windows import Rows

_FIRST_ROWS = 64
_SLEPT_PUBLISHES = 6
"""So many renewals missed with no event between: the machine slept, and nobody counted."""
_WELL_WITHIN = 0.999
"""Of a step: an event that is no later than this after one can have no other before it."""
_STEP_BACK_S = 60.0
"""Clocks of several gateways differ; only a larger step back is one."""


class PredictorEngine:
    """Learns from every event and says what comes next.

    Parameters
    ----------
    config : PredictorConfig
    signals : bool
        Whether to forecast counts and latencies too; the next-use curves do not depend on them.
    """

    def __init__(self, config: PredictorConfig, *, signals: bool = True) -> None:
        self._config = config
        self._rows: OrderedDict[ModelId, int] = OrderedDict()
        self._names: dict[int, ModelId] = {}
        self._free: list[int] = []
        self._room = min(_FIRST_ROWS, config.max_models)
        self._rates = DecayedRates(self._room)
        self._next_use = NextUseForecaster(self._room, self._rates, config.without)
        self._demand = DemandForecaster(self._room, self._rates) if signals else None
        self._latency = LatencyBook() if signals else None
        self._served: set[ModelId] = set()
        self._published: dict[ModelId, tuple[Forecast, ...]] = {}
        self._touched: dict[ModelId, None] = {}
        self._dropped: deque[ModelId] = deque(maxlen=config.max_models)
        self._filter = EventFilter()
        self._newest_s = -math.inf
        self._now_s = -math.inf
        self._advanced_s = -math.inf
        self._ticked_s = -math.inf
        self._utc_offset_s = 0.0
        self.champion = MIXTURE
        """Whose quantiles of arrivals are published."""
        self.forgotten = 0
        """Models that were dropped because there were more than ``max_models``."""
        self.rewinds = 0
        """How often the clock was found to have been set back."""

    @property
    def models(self) -> tuple[ModelId, ...]:
        """The models it knows, longest unseen first."""
        return tuple(self._rows)

    def knows(self, model: ModelId | None) -> bool:
        """Whether ``model`` is one that it forecasts."""
        return model in self._rows

    @property
    def too_late(self) -> int:
        """Arrivals that came after their time was forgotten; the rates know of them."""
        return 0 if self._demand is None else self._demand.too_late

    @property
    def resets(self) -> int:
        """How often something learned had to be started afresh."""
        if self._demand is None or self._latency is None:
            return 0
        return self._demand.resets + self._latency.resets

    @property
    def drifts(self) -> int:
        """How often the habits of a model were found to have changed."""
        return 0 if self._demand is None else self._demand.drifts

    def observe(self, event: AnyEvent) -> bool:
        """Take in one event; False: it is doubled or impossible, and does not count."""
        if not self._filter.admits(event):
            return False
        self._reach(event.at_s)
        self._newest_s = max(self._newest_s, event.at_s)
        match event:
            case RequestReceived(model=model, is_retry=False, is_deferrable=False) if (
                model is not None
            ):
                self._arrive(model, event.at_s)
            case FirstTokenSent(model=model) if model is not None:
                self._serve(model)
            case RequestCompleted(model=model, status=status) if model is not None and status < 400:
                self._serve(model)
            case (
                RequestCompleted(model=model, status=404) | RequestFailed(model=model, status=404)
            ) if model is not None:
                self._forget_invented(model)
            case IntentSignal(model=model):
                self._hint(model, event.at_s)
            case _:
                pass
        if self._latency is not None:
            self._latency.observe(event)
        return True

    def advance(self, now_s: float) -> None:
        """Let time pass: score and learn what is complete by ``now_s``.

        That is done at whole multiples of ``publish_s``, whenever it is called: so what was
        learned depends on the events alone, and a history that is told again teaches the same.
        """
        if not math.isfinite(now_s):
            return
        if now_s < max(self._now_s, self._newest_s) - _STEP_BACK_S:
            self._rewind(now_s)
        slept = self._now_s > -math.inf and not self._is_soon(now_s, self._newest_s)
        self._now_s = now_s
        if slept or self._advanced_s == -math.inf:
            self._step(self._grid(now_s), watched=not slept)
        else:
            self._walk(now_s, watched=True)

    def pass_time(self, until_s: float, *, steps: int) -> bool:
        """Advance towards ``until_s`` as ticks would have, for history that is told in a row.

        Scores and weights are learned at the times at which they would have been: an engine
        that only observed would look at the world just when something happens, and think it busy.

        Returns
        -------
        bool
            Whether it got there; False: call it again, ``steps`` did not do.
        """
        if self._advanced_s == -math.inf:
            self.advance(until_s)
        for _ in range(steps):
            if self._advanced_s + self._config.publish_s > until_s:
                return True
            self.advance(self._advanced_s + self._config.publish_s)
        return False

    def _reach(self, at_s: float) -> None:
        """Make the steps that lie before an event, where somebody lets time pass.

        Where events are only counted nothing is looked at: an engine that looked just when
        something happens would think the world busy.
        """
        if at_s - self._advanced_s < _WELL_WITHIN * self._config.publish_s:
            return
        if at_s - self._now_s <= _SLEPT_PUBLISHES * self._config.publish_s:
            self._walk(at_s, watched=True)
        else:
            self._advanced_s = max(self._advanced_s, self._grid(at_s))
            self._follow_wall_clock(at_s)

    def _is_soon(self, at_s: float, newest_s: float) -> bool:
        """Whether nothing but a few late ticks can lie between the last step and ``at_s``."""
        last_s = max(self._advanced_s, self._now_s, newest_s)
        return at_s - last_s <= _SLEPT_PUBLISHES * self._config.publish_s

    def _walk(self, until_s: float, *, watched: bool) -> None:
        """All steps up to ``until_s`` that were not made yet."""
        publish_s = self._config.publish_s
        for at_s in steps_between(self._advanced_s, until_s, publish_s, most=_SLEPT_PUBLISHES):
            self._step(at_s, watched=watched)

    def _step(self, at_s: float, *, watched: bool) -> None:
        if self._advanced_s == -math.inf:
            self._follow_wall_clock(at_s)
        self._advanced_s = at_s
        rows = self._all_rows()
        self._next_use.advance(rows, at_s)
        if self._demand is not None:
            self._demand.advance(rows, at_s, watched=watched)
        # Only now: slots that have ended were those of the clock before.
        self._follow_wall_clock(at_s)

    def _follow_wall_clock(self, at_s: float) -> None:
        offset_s = utc_offset_s(self._config.time_zone, at_s)
        if offset_s == self._utc_offset_s:
            return
        self._utc_offset_s = offset_s
        self._next_use.keep_to(offset_s)
        if self._demand is not None:
            self._demand.keep_to(offset_s)

    def _grid(self, at_s: float) -> float:
        return grid(at_s, self._config.publish_s)

    def tick(self, now_s: float) -> tuple[ModelForecast, ...]:
        """All forecasts, when they are due (every ``publish_s``), else none."""
        self.advance(now_s)
        if 0.0 <= now_s - self._ticked_s < self._config.publish_s:
            return ()
        self._ticked_s = now_s
        models = tuple(self._rows)
        self._touched.clear()
        self._publish_signals(models, now_s)
        return self._forecasts(models, now_s)

    @property
    def has_renewals(self) -> bool:
        """Whether ``renewals`` would give anything."""
        return bool(self._touched)

    def renewals(self, now_s: float) -> tuple[ModelForecast, ...]:
        """Fresh forecasts of models that a request came for, and of those that tend to follow."""
        models = tuple(self._touched)
        self._touched.clear()
        return self._forecasts(models, now_s)

    def next_use(self, model: ModelId, now_s: float) -> NextUse | None:
        """The curve of one model as of now; None for one without a request so far."""
        forecast = self.forecast_now(model, now_s)
        return None if forecast is None else forecast.next_use

    def forecast_now(self, model: ModelId, now_s: float) -> ModelForecast | None:
        """One model's fresh curve with its signals; None for one without a request so far."""
        if model not in self._rows:
            return None
        self._touched.pop(model, None)
        return self._forecasts((model,), now_s)[0]

    def arrival_opinions(self, now_s: float) -> ArrivalOpinions | None:
        """What every method expects, in one pass; None without signals or without models."""
        if self._demand is None or not self._rows:
            return None
        methods, means, quantiles = self._demand.opinions(self._all_rows(), now_s)
        return ArrivalOpinions(
            models=tuple(self._rows), methods=methods, means=means, quantiles=quantiles
        )

    def use_opinions(self, now_s: float) -> UseOpinions:
        """When every method expects the next request of each model."""
        methods, hazards = self._next_use.opinions(self._all_rows(), now_s)
        return UseOpinions(models=tuple(self._rows), methods=methods, hazards=hazards)

    def latency(
        self, model: ModelId, *, in_flight: int | None = None, input_tokens: int | None = None
    ) -> Mapping[Signal, LatencyForecast]:
        """What a warm request of ``model`` takes under a load; None: as it is just now."""
        if self._latency is None:
            return {}
        return self._latency.expected(model, in_flight=in_flight, input_tokens=input_tokens)

    def take_challenger(self, challenger: Challenger | None, *, promoted: bool = False) -> None:
        """Ask this one beside all other methods from now on; None: nobody.

        ``promoted``: its own quantiles are published in place of the mixture's.
        """
        if self._demand is not None:
            self._demand.take_challenger(challenger)
            self.champion = BOOSTED if promoted and challenger is not None else MIXTURE

    def take_dropped(self) -> tuple[ModelId, ...]:
        """Models that it no longer knows, each given once; their forecasts are to be removed."""
        dropped = tuple(model for model in self._dropped if model not in self._rows)
        self._dropped.clear()
        return dropped

    def _arrive(self, model: ModelId, at_s: float) -> None:
        row = self._row(model)
        self._touched[model] = None
        self._rates.add(row, at_s)
        for follower in self._next_use.arrive(row, at_s):
            self._touched[self._names[follower]] = None
        if self._demand is not None:
            self._demand.add(row, at_s)

    def _hint(self, model: ModelId | None, at_s: float) -> None:
        """A sign is no use: it makes no model known that nobody ever asked for."""
        if self._demand is None:
            return
        if model is None:
            self._demand.list_all(at_s)
        elif model in self._rows:
            self._demand.pick(self._rows[model], at_s)

    def _forget_invented(self, model: ModelId) -> None:
        """A client made the name up: nothing is learned from it."""
        if model in self._rows and model not in self._served:
            self._free.append(self._drop(model))

    def _serve(self, model: ModelId) -> None:
        if model in self._rows:
            self._served.add(model)

    def _rewind(self, now_s: float) -> None:
        self.rewinds += 1
        self._newest_s = now_s
        self._advanced_s = self._grid(now_s) - self._config.publish_s
        self._filter.rewind(now_s)
        self._rates.rewind(now_s)
        self._next_use.rewind(now_s)
        if self._demand is not None:
            self._demand.rewind(now_s)
        if self._latency is not None:
            self._latency.rewind()

    def _all_rows(self) -> Rows:
        return np.fromiter(self._rows.values(), dtype=np.intp, count=len(self._rows))

    def _forecasts(self, models: tuple[ModelId, ...], now_s: float) -> tuple[ModelForecast, ...]:
        if not models:
            return ()
        rows = np.array([self._rows[model] for model in models], dtype=np.intp)
        curves = next_use_records(
            models,
            self._next_use.curves(rows, now_s).tolist(),
            self._next_use.accounts(rows),
            reliability_error=self._next_use.reliability_error,
            made_at_s=now_s,
            expires_at_s=now_s + self._config.expires_s,
        )
        latency = self._latency
        return tuple(
            ModelForecast(
                model=curve.model,
                next_use=curve,
                signals=self._published.get(curve.model, ()),
                cold_wait_s=None if latency is None else latency.cold_wait_s(curve.model),
            )
            for curve in curves
        )

    def _publish_signals(self, models: tuple[ModelId, ...], now_s: float) -> None:
        if self._demand is None or self._latency is None or not models:
            return
        expires_at_s = now_s + self._config.expires_s
        expected = self._demand.forecast(self._all_rows(), now_s)
        arrivals = arrival_forecasts(models, expected, made_at_s=now_s, expires_at_s=expires_at_s)
        if self.champion == BOOSTED:
            said = self._demand.boosted_quantiles(self._all_rows(), now_s)
            arrivals = in_champions_words(arrivals, said)
        for model, forecast in zip(models, arrivals, strict=True):
            self._published[model] = (forecast, *self._latency.records(forecast))

    def _row(self, model: ModelId) -> int:
        row = self._rows.get(model)
        if row is not None:
            self._rows.move_to_end(model)
            return row
        if self._free:
            row = self._free.pop()
        elif len(self._rows) >= self._config.max_models:
            row = self._drop(next(iter(self._rows)))
            self.forgotten += 1
        else:
            row = len(self._rows)
            self._make_room(row)
        self._rows[model] = row
        self._names[row] = model
        if self._latency is not None:
            self._latency.open_page(model)
        return row

    def _drop(self, model: ModelId) -> int:
        row = self._rows.pop(model)
        del self._names[row]
        self._rates.clear(row)
        self._next_use.clear(row)
        if self._demand is not None:
            self._demand.clear(row)
        if self._latency is not None:
            self._latency.drop(model)
        for known in (self._published, self._touched):
            known.pop(model, None)
        self._served.discard(model)
        self._dropped.append(model)
        return row

    def _make_room(self, row: int) -> None:
        if row < self._room:
            return
        self._room = min(2 * self._room, self._config.max_models)
        self._rates.grow(self._room)
        self._next_use.grow(self._room)
        if self._demand is not None:
            self._demand.grow(self._room)
