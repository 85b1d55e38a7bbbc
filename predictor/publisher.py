"""Says what the engine expects, while it is this process whose word counts."""

from __future__ import annotations

from contracts.forecasts import ModelForecast
from contracts.ids import ModelId
from contracts.ports import ForecastStore
from predictor.engine import PredictorEngine

_RENEW_S = 1.0
"""A model's curve is renewed at its arrivals, but not more often than this."""


class Publisher:
    """Puts forecasts into the store, and takes out those of models that are gone.

    What could not be written is kept and written at the next try.

    Parameters
    ----------
    publish_s : float
        How often every model's forecast is renewed.
    """

    def __init__(
        self, engine: PredictorEngine, forecasts: ForecastStore, *, publish_s: float
    ) -> None:
        self._engine = engine
        self._forecasts = forecasts
        self._publish_s = publish_s
        self._published_at_s = float("-inf")
        self._renewed_at_s = float("-inf")
        self._unsent: dict[ModelId, ModelForecast] = {}

    async def take_over(self, token: int | None) -> None:
        """Fence off who wrote before; forecasts of models that nothing is known of go."""
        await self._forecasts.remove((), token=token)
        stored = await self._forecasts.get_all()
        known = frozenset(self._engine.models)
        strangers = tuple(model for model in stored if model not in known)
        await self._forecasts.remove(strangers, token=token)
        self._published_at_s = float("-inf")

    def renew(self, now_s: float) -> None:
        """Have made what is due by now; of thousands of models that takes a second."""
        for forecast in self._renewed(now_s):
            self._unsent[forecast.model] = forecast

    async def send(self, token: int | None) -> None:
        """Write what was made."""
        if self._unsent:
            await self._forecasts.put(tuple(self._unsent.values()), token=token)
            self._unsent.clear()

    async def remove(self, models: tuple[ModelId, ...], token: int | None) -> None:
        """The engine has forgotten these."""
        for model in models:
            self._unsent.pop(model, None)
        await self._forecasts.remove(models, token=token)

    def stand_by(self) -> None:
        """Somebody else says what is to be said."""
        self._unsent.clear()

    def due_in_s(self, now_s: float) -> float:
        """Seconds until something is to be written."""
        due_s = self._published_at_s + self._publish_s
        if self._engine.has_renewals:
            due_s = min(due_s, self._renewed_at_s + _RENEW_S)
        return due_s - now_s

    def _renewed(self, now_s: float) -> tuple[ModelForecast, ...]:
        """Everything each ``publish_s``, and in between what something came for."""
        if not 0.0 <= now_s - self._published_at_s < self._publish_s:
            self._published_at_s = self._renewed_at_s = now_s
            return self._engine.tick(now_s)
        if not 0.0 <= now_s - self._renewed_at_s < _RENEW_S:
            self._renewed_at_s = now_s
            return self._engine.renewals(now_s)
        return ()
