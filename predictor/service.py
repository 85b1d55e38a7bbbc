"""The predictor as a process: telemetry in, forecasts out.

State lives in memory alone, and the event log is the truth that it is rebuilt from. So the
log is read by place from its beginning and then followed. A consumer group would not do: it
remembers what an earlier life has read, and this life knows nothing of that. The log is bounded;
what was before its beginning is told from the rings of past counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from contracts.errors import Permanent, Transient
from contracts.events import AnyEvent
from contracts.forecasts import ModelForecast
from contracts.history import HistoryStore
from contracts.ids import ModelId
from contracts.ports import Clock, Entry, EventLog, ForecastStore, entry_order
from predictor.engine import PredictorEngine
from predictor.history_keeper import BEGINNING, HistoryKeeper
from predictor.snapshot_watch import LOOK_S, ChampionWatch

_log = structlog.get_logger("headstart.predictor")

_BATCH = 500
_LEARN_AGAIN_S = 86_400.0
"""History that weights and scores are rebuilt from; what they had learned before that has faded
in them anyway. A hundred models take some ten seconds for it."""
_STEPS_AT_ONCE = 50
"""Steps of history between two chances for signals to be heard."""
_RENEW_S = 1.0
"""A model's curve is renewed at its arrivals, but not more often than this."""
_MAX_WAIT_S = 1.0
_MIN_WAIT_S = 0.01
_RETRY_S = 0.5
"""Real seconds between two attempts while the server is away."""

Attempt = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PredictorPorts:
    """The outside, as the service needs it."""

    clock: Clock
    events: EventLog
    forecasts: ForecastStore
    champions: ChampionWatch | None = None
    """Where a challenger may come from; None: there is none."""
    history: HistoryStore | None = None
    """Rings of past counts; None: what the log has forgotten is forgotten."""


class PredictorService:
    """Reads the log, lets the engine learn, and publishes what it expects.

    Parameters
    ----------
    engine : PredictorEngine
        A fresh one; nothing else may feed it.
    ports : PredictorPorts
    publish_s : float
        How often every model's forecast is renewed.
    """

    def __init__(self, engine: PredictorEngine, ports: PredictorPorts, *, publish_s: float) -> None:
        self._engine = engine
        self._clock = ports.clock
        self._events = ports.events
        self._forecasts = ports.forecasts
        self._champions = ports.champions
        self._history = (
            None
            if ports.history is None
            else HistoryKeeper(ports.history, engine, flush_s=publish_s)
        )
        self._looked_at_s = float("-inf")
        self._publish_s = publish_s
        self._place = BEGINNING
        self._published_at_s = float("-inf")
        self._renewed_at_s = float("-inf")
        self._unsent: dict[ModelId, ModelForecast] = {}
        self._unremoved: dict[ModelId, None] = {}
        self._away = False
        self.events_read = 0
        """Events taken from the log so far."""

    async def run(self) -> None:
        """Rebuild from the log, then follow it; until cancelled."""
        await self._look_for_champion()
        while not await self._attempt(self._catch_up):
            await self._clock.sleep(_RETRY_S * self._clock.scale)
        while True:
            if not await self._attempt(self._follow):
                await self._clock.sleep(_RETRY_S * self._clock.scale)

    async def _catch_up(self) -> None:
        """Learn from what the log holds, as if it happened again, before anything is said."""
        end = await self._events.last_id()
        learn_from_s = self._clock.now_s() - _LEARN_AGAIN_S
        if self._history is not None and self._place == BEGINNING:
            await self._history.retell(
                self._events,
                self._clock.now_s(),
                lambda until_s: self._pass_time(until_s, learn_from_s),
            )
        while entry_order(self._place) < entry_order(end):
            entries = await self._events.read_after(self._place, count=_BATCH)
            for entry in entries:
                await self._pass_time(entry.value.at_s, learn_from_s)
                self._take(entry)
            if not entries:
                self._place = end  # the last ones cannot be read
            await self._clock.sleep(0.0)
        await self._pass_time(self._clock.now_s(), learn_from_s)
        stored = await self._forecasts.get_all()
        known = frozenset(self._engine.models)
        await self._forecasts.remove(tuple(model for model in stored if model not in known))
        _log.info(
            "predictor_caught_up", events=self.events_read, models=len(known), place=self._place
        )

    async def _pass_time(self, until_s: float, learn_from_s: float) -> None:
        """Let the engine score and learn at the times at which it would have done so.

        Older history than ``learn_from_s`` is only counted, which takes microseconds an event.
        """
        until_s = min(until_s, self._clock.now_s())
        if until_s >= learn_from_s:
            while not self._engine.pass_time(until_s, steps=_STEPS_AT_ONCE):
                await self._clock.sleep(0.0)

    async def _look_for_champion(self) -> None:
        """Take over what a worker has trained, once a minute; what is wrong with it is told."""
        now_s = self._clock.now_s()
        if self._champions is None or 0.0 <= now_s - self._looked_at_s < LOOK_S:
            return
        self._looked_at_s = now_s
        if await self._champions.look():
            found = self._champions.challenger
            self._engine.take_challenger(found, promoted=found is not None and found.promoted)

    async def _follow(self) -> None:
        await self._look_for_champion()
        for entry in await self._events.read_after(
            self._place, count=_BATCH, block_s=self._wait_s()
        ):
            self._take(entry)
        now_s = self._clock.now_s()
        for forecast in self._renewed(now_s):
            self._unsent[forecast.model] = forecast
        self._unremoved.update(dict.fromkeys(self._engine.take_dropped()))
        for model in self._unremoved:
            self._unsent.pop(model, None)
        if self._unremoved:
            if self._history is not None:
                await self._history.drop(tuple(self._unremoved))
            await self._forecasts.remove(tuple(self._unremoved))
            self._unremoved.clear()
        if self._unsent:
            await self._forecasts.put(tuple(self._unsent.values()))
            self._unsent.clear()
        if self._history is not None:
            await self._history.flush(self._place, now_s)

    def _take(self, entry: Entry[AnyEvent]) -> None:
        self._engine.observe(entry.value)
        if self._history is not None:
            self._history.note(entry)
        self._place = entry.entry_id
        self.events_read += 1

    def _renewed(self, now_s: float) -> tuple[ModelForecast, ...]:
        """Everything each ``publish_s``, and in between what something came for."""
        if not 0.0 <= now_s - self._published_at_s < self._publish_s:
            self._published_at_s = self._renewed_at_s = now_s
            return self._engine.tick(now_s)
        if not 0.0 <= now_s - self._renewed_at_s < _RENEW_S:
            self._renewed_at_s = now_s
            return self._engine.renewals(now_s)
        return ()

    def _wait_s(self) -> float:
        """Real seconds to wait for events: until something is to be published."""
        now_s = self._clock.now_s()
        due_s = self._published_at_s + self._publish_s
        if self._engine.has_renewals:
            due_s = min(due_s, self._renewed_at_s + _RENEW_S)
        wait_s = (due_s - now_s) / self._clock.scale
        return min(max(wait_s, _MIN_WAIT_S), _MAX_WAIT_S)

    async def _attempt(self, step: Attempt) -> bool:
        """Whether ``step`` got through; one line when the server goes away, one when it is back."""
        try:
            await step()
        except (Transient, Permanent) as error:
            if not self._away:
                self._away = True
                _log.warning("predictor_store_away", error=str(error))
            return False
        if self._away:
            self._away = False
            _log.info("predictor_store_back")
        return True
