"""What the control service knows at the moment, kept current by its followers."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping

from api.control.history import DemandHistory
from api.control.invented import InventedNames
from api.control.kpis.ledger import KpiLedger
from api.control.tally import RequestTally
from contracts.forecasts import ModelForecast
from contracts.ids import ModelId
from contracts.plan import Decision
from contracts.ports import entry_lag_s
from contracts.predictors import PredictorBeat, owner_of, present
from contracts.routing import RoutingTable
from contracts.scaling import Scaling
from contracts.world import Mode, ModelStatus, Sla, WorldSnapshot

STALE_AFTER_S = 15.0
"""A controller that lives publishes every second; this is well past any hiccup."""

_READ_WITHIN_S = 3.0
"""A controller reads what people set well within this time of being told."""

_MAX_FORECASTS = 5000


class Board:
    """The newest of everything that was read. Only touched on the event loop.

    Attributes
    ----------
    world, routing : or None
        None: nobody has published one that we saw.
    jobs, workers :
        Jobs by queue and state, and processes by queue; empty: there is no queue, or not yet.
    scalings :
        The newest answer of each autoscaling target; empty: there is none.
    predictors :
        What predictors told of themselves, however long ago.
    mode_wanted : or None
        What somebody set; None: nobody did.
    log_end, log_place : str or None
        The newest entry of the event log, and the one that this process has read to.
    store_fault : str or None
        Why the world could not be read at the last try. It may name addresses: for logs.
    """

    def __init__(self, *, default_target_s: float) -> None:
        self._default_target_s = default_target_s
        self.world: WorldSnapshot | None = None
        self.routing: RoutingTable | None = None
        self.forecasts: OrderedDict[ModelId, ModelForecast] = OrderedDict()
        self.baselines: Mapping[str, Mapping[str, float]] = {}
        self.slas: Mapping[ModelId, Sla] = {}
        self._deleted_slas: dict[ModelId, float] = {}
        self._pin_wishes: dict[ModelId, tuple[bool, float]] = {}
        self.mode_wanted: Mode | None = None
        self.store_fault: str | None = None
        self.jobs: Mapping[str, Mapping[str, int]] = {}
        self.workers: Mapping[str, int] = {}
        self.scalings: Mapping[str, Scaling] = {}
        self.predictors: tuple[PredictorBeat, ...] = ()
        self.history = DemandHistory()
        self.invented = InventedNames()
        self.tally = RequestTally(self.target_s)
        self.kpis = KpiLedger(self.target_s)
        self.decisions: Counter[tuple[str, str]] = Counter()
        self.forgotten_forecasts = 0
        self.log_end: str | None = None
        self.log_place: str | None = None

    def target_s(self, model: ModelId) -> float:
        """The latency target that a request of ``model`` is judged by."""
        sla = self.sla(model)
        return sla.target_s if sla is not None else self._default_target_s

    def sla(self, model: ModelId) -> Sla | None:
        """What somebody set, else what the configuration says as the controller tells it."""
        found = self.slas.get(model)
        if found is not None or self.world is None:
            return found
        # What was deleted just now may still be in a snapshot that was taken before.
        deleted_at_s = self._deleted_slas.get(model, -math.inf)
        if self.world.taken_at_s <= deleted_at_s + _READ_WITHIN_S:
            return None
        self._deleted_slas.pop(model, None)
        return self.world.slas.get(model)

    def sla_deleted(self, model: ModelId, at_s: float) -> None:
        """Somebody deleted a target; the controller's next snapshots will show it."""
        self._deleted_slas[model] = at_s

    def all_slas(self) -> Mapping[ModelId, Sla]:
        """Every model's target that was set or configured."""
        configured = self.world.slas if self.world is not None else {}
        found = {model: self.sla(model) for model in {*configured, *self.slas}}
        return {model: sla for model, sla in found.items() if sla is not None}

    def wish_pin(self, model: ModelId, at_s: float, *, pinned: bool) -> None:
        """Somebody pinned or unpinned a model; the controller's next snapshots will show it."""
        self._pin_wishes[model] = (pinned, at_s)

    def is_pinned(self, status: ModelStatus) -> bool:
        """What the controller says, or what was just written and it cannot have read yet."""
        pinned, at_s = self._pin_wishes.get(status.model, (status.pinned, -math.inf))
        if self.world is not None and self.world.taken_at_s > at_s + _READ_WITHIN_S:
            self._pin_wishes.pop(status.model, None)
            return status.pinned
        return pinned

    def take_forecasts(self, forecasts: Iterable[ModelForecast]) -> None:
        """Newer forecasts of some models; an older one than what is held is left out."""
        for forecast in forecasts:
            self.history.forecast_made(forecast)
            self.forecasts[forecast.model] = forecast
            self.forecasts.move_to_end(forecast.model)
        while len(self.forecasts) > _MAX_FORECASTS:
            self.forecasts.popitem(last=False)
            self.forgotten_forecasts += 1

    def replace_forecasts(self, forecasts: Mapping[ModelId, ModelForecast]) -> None:
        """All forecasts that there are: those of models that are gone go too."""
        for model in [known for known in self.forecasts if known not in forecasts]:
            del self.forecasts[model]
        self.take_forecasts(forecasts.values())

    def drop(self, model: ModelId) -> None:
        """Forget a name that turned out to be no model."""
        self.history.drop(model)
        self.kpis.drop(model)

    def count_decision(self, decision: Decision) -> None:
        """Both labels are closed lists, so the counter stays small."""
        self.decisions[decision.reason.value, decision.outcome.value] += 1
        self.kpis.decided(decision.made_at_s)

    def stale_reason(self, now_s: float, *, stale_after_s: float = STALE_AFTER_S) -> str | None:
        """Why what is known of the world may not be so any more; None: it is current."""
        if self.store_fault is not None:
            return "the store (Redis) does not answer"
        if self.world is None:
            return "no controller has published a snapshot yet"
        age_s = now_s - self.world.taken_at_s
        if age_s > stale_after_s:
            return f"the controller's last snapshot is {age_s:.0f} s old"
        return None

    def living_predictors(self, now_s: float) -> tuple[PredictorBeat, ...]:
        """The owner first, then those that stand by or still learn."""
        return present(self.predictors, now_s)

    def log_lags_s(self, now_s: float) -> Mapping[str, float]:
        """How far readers of the event log are behind its end; whoever is not known is left out."""
        owner = owner_of(self.predictors, now_s)
        places = {
            "predictor": None if owner is None else owner.place,
            "control": self.log_place,
            "controller": None if self.world is None else self.world.position,
        }
        if self.log_end is None:
            return {}
        return {
            reader: entry_lag_s(place, self.log_end)
            for reader, place in places.items()
            if place is not None and place != "0"
        }

    def snapshot_age_s(self, now_s: float) -> float | None:
        """Seconds since the controller took the newest snapshot; None: there is none."""
        return None if self.world is None else max(0.0, now_s - self.world.taken_at_s)

    def forecast_age_s(self, now_s: float) -> float | None:
        """Seconds since the predictor made its newest forecast; None: there is none."""
        made = [made_at_s for one in self.forecasts.values() if (made_at_s := _made_at_s(one))]
        return max(0.0, now_s - max(made)) if made else None

    def known_models(self) -> frozenset[ModelId]:
        """Every model that anybody has told of."""
        world = self.world.models if self.world is not None else {}
        return frozenset(world) | frozenset(self.forecasts) | frozenset(self.slas)

    def find_model(self, name: str) -> ModelId | None:
        """The model of that name or alias; None: it is not known."""
        model = ModelId(name)
        if model in self.known_models():
            return model
        return self.aliases.get(name)

    @property
    def aliases(self) -> Mapping[str, ModelId]:
        """Other names of models."""
        return self.routing.aliases if self.routing is not None else {}


def _made_at_s(forecast: ModelForecast) -> float | None:
    times = [signal.made_at_s for signal in forecast.signals]
    if forecast.next_use is not None:
        times.append(forecast.next_use.made_at_s)
    return max(times, default=None)
