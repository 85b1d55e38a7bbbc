"""Walk-forward backtest: the engine is told a history as it happened and asked now and then.

Nothing is looked ahead: at each look the engine knows the events before it and nothing else, and
a challenger has been trained on minutes that had ended. What came afterwards is read from the
history only to score what was said.

Looks are on whole minutes, at strides that share no factor with the hour's sixty minutes, so that
no phase of cron is preferred.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from contracts.config import PredictorConfig
from contracts.events import AnyEvent
from contracts.forecasts import HORIZONS_S, QUANTILE_LEVELS
from contracts.ids import ModelId
from predictor.backtest_history import MINUTE_S, History
from predictor.backtest_scores import ArrivalScore, ArrivalTally, UseScore, UseTally
from predictor.engine import PredictorEngine
from predictor.models.boosted import METHOD as BOOSTED
from predictor.models.boosted import Challenger, mean_of
from predictor.opinions import MIXTURE, ArrivalOpinions, UseOpinions
from predictor.windows import Floats, Rows

STRIDES_S: tuple[float, ...] = (420.0, 420.0, 1020.0, 3660.0)
"""Between two looks at each of ``HORIZONS_S``: 7, 17 and 61 minutes."""
DAY_S = 86_400.0
HOUR_S = 3600.0

NAIVE_SEASONAL = "naive_seasonal"
"""The unit of the scaled loss: what came a season ago comes again, with no band around it."""
NAIVE_LAST_VALUE = "naive_last_value"
BANDS = "_bands"
"""The engine's floors are these with bands learned around them, and are named so."""

_BAND_MODELS = 4
_BAND_HORIZON = HORIZONS_S.index(300.0)
_STEPS = 1_000_000

Progress = Callable[[float], None]
"""Told the share that is done."""


Trainer = Callable[[Floats, float], Challenger | None]
"""Minutes so far (models, minutes), not a number before a model was first seen, and their end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestPlan:
    """What is to be judged.

    Attributes
    ----------
    warm_up_s : float
        Looks begin this long after the first event; at least a season.
    season_s : float
        What the seasonal naive forecast looks back.
    trainer : callable or None
        Trains the challenger on what has been, each ``retrain_s``; None: there is none.
    """

    workload: str
    warm_up_s: float
    season_s: float
    config: PredictorConfig = field(default_factory=PredictorConfig)
    trainer: Trainer | None = None
    retrain_s: float = 7 * DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestRow:
    """One method at one horizon. A method that says nothing of one kind has None there."""

    workload: str
    method: str
    horizon_s: float
    arrivals: ArrivalScore | None
    use: UseScore | None
    looks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """What was forecast for one model over time, within five minutes, and what came."""

    model: ModelId
    at_s: tuple[float, ...]
    quantiles: tuple[tuple[float, ...], ...]
    came: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestResult:
    """All rows, and what can be drawn of them."""

    rows: tuple[BacktestRow, ...]
    bands: tuple[Band, ...]
    losses: Mapping[str, Mapping[ModelId, float]]
    """By method and model: scaled loss within five minutes, where it can be told."""
    models: int
    events: int
    from_s: float
    until_s: float


def plan_for(workload: str, history: History, config: PredictorConfig) -> BacktestPlan:
    """Season and warm-up that fit a history's length.

    Two days or more: a season of a day, which is warm-up too. Else, as yesterday is not in it:
    a season of an hour, and an eighth of the history as warm-up.
    """
    length_s = history.end_s - history.start_s
    if length_s >= 2 * DAY_S:
        return BacktestPlan(workload=workload, warm_up_s=DAY_S, season_s=DAY_S, config=config)
    warm_up_s = max(HOUR_S, length_s / 8)
    return BacktestPlan(workload=workload, warm_up_s=warm_up_s, season_s=HOUR_S, config=config)


def plan_for_week(workload: str, history: History, config: PredictorConfig) -> BacktestPlan:
    """As ``plan_for``, but only the last week is scored; what lies before it is learned from."""
    plan = plan_for(workload, history, config)
    before_s = history.end_s - history.start_s - 7 * DAY_S
    return replace(plan, warm_up_s=max(plan.warm_up_s, before_s))


def walk_forward(
    plan: BacktestPlan, events: Sequence[AnyEvent], *, progress: Progress = lambda _share: None
) -> BacktestResult:
    """Tell the engine ``events`` in order and judge every method at every look.

    Parameters
    ----------
    events : sequence
        In the order of time.

    Raises
    ------
    Invalid
        There is no request among them.
    """
    history = History.of(events)
    return _Walk(plan, history).run(events, progress)


class _Walk:
    def __init__(self, plan: BacktestPlan, history: History) -> None:
        self._plan = plan
        self._history = history
        self._engine = PredictorEngine(plan.config)
        self._book = _Book(plan, history)
        self._expert: Challenger | None = None
        self._trained_s = history.start_s + max(plan.warm_up_s, 0.0) - plan.retrain_s

    def run(self, events: Sequence[AnyEvent], progress: Progress) -> BacktestResult:
        start_s, end_s = self._history.start_s, self._history.end_s
        place = 0
        self._engine.advance(start_s)
        for at_s, horizons in _looks(start_s + self._plan.warm_up_s, end_s):
            while place < len(events) and events[place].at_s < at_s:
                self._pass_time(events[place].at_s)
                self._engine.observe(events[place])
                place += 1
            self._pass_time(at_s)
            self._train(at_s)
            self._look(at_s, horizons)
            progress((at_s - start_s) / (end_s - start_s))
        return BacktestResult(
            rows=self._book.rows(),
            bands=self._book.bands(),
            losses=self._book.losses(),
            models=len(self._history.models),
            events=len(events),
            from_s=start_s + self._plan.warm_up_s,
            until_s=end_s,
        )

    def _pass_time(self, until_s: float) -> None:
        self._engine.pass_time(until_s, steps=_STEPS)

    def _train(self, at_s: float) -> None:
        if self._plan.trainer is None or at_s < self._trained_s + self._plan.retrain_s:
            return
        self._trained_s = at_s
        trained = self._plan.trainer(self._history.minutes_until(at_s), at_s)
        if trained is not None:
            self._expert = trained
            self._engine.take_challenger(trained)

    def _look(self, at_s: float, horizons: Sequence[int]) -> None:
        self._engine.advance(at_s)
        arrivals = self._engine.arrival_opinions(at_s)
        if arrivals is None:
            return
        rows = self._history.rows(arrivals.models)
        boosted = None
        if self._plan.trainer is not None:
            boosted = np.full((len(rows), len(HORIZONS_S), len(QUANTILE_LEVELS)), np.nan)
            if self._expert is not None:
                minutes = self._history.minutes_until(at_s, length=self._expert.minutes_needed)
                boosted = self._expert.quantiles(minutes[rows], at_s)
        self._book.note(at_s, horizons, rows, arrivals, self._engine.use_opinions(at_s), boosted)


class _Book:
    """Keeps the score of every method at every horizon."""

    def __init__(self, plan: BacktestPlan, history: History) -> None:
        self._plan = plan
        self._history = history
        self._methods: tuple[str, ...] = ()
        self._asked: list[int] = []
        self._use_methods: tuple[str, ...] = ()
        self._arrivals: list[ArrivalTally] = []
        self._uses: list[UseTally] = []
        busiest = np.argsort(-history.totals(), kind="stable")[:_BAND_MODELS]
        self._bands: dict[int, list[tuple[float, tuple[float, ...], float]]] = {
            row: [] for row in busiest.tolist()
        }

    def note(
        self,
        at_s: float,
        horizons: Sequence[int],
        rows: Rows,
        arrivals: ArrivalOpinions,
        uses: UseOpinions,
        boosted: Floats | None,
    ) -> None:
        """What all have said at ``at_s`` about the models of ``rows``."""
        if not self._methods:
            self._open(arrivals, uses, boosted)
        hazards = _hazards_within(uses)
        for horizon in horizons:
            length_s = HORIZONS_S[horizon]
            came = self._history.counts(rows, at_s, length_s)
            last = self._history.counts(rows, at_s - length_s, length_s)
            season = self._history.counts(rows, at_s - self._plan.season_s, length_s)
            points = np.stack([last, season], axis=1)
            bands = arrivals.quantiles[:, self._asked, horizon]
            quantiles = [bands, np.repeat(points[:, :, None], bands.shape[2], axis=2)]
            means = [arrivals.means[:, self._asked, horizon], points]
            if boosted is not None:
                quantiles.append(boosted[:, None, horizon])
                means.append(mean_of(boosted[:, horizon])[:, None])
            self._arrivals[horizon].add(
                rows, np.concatenate(quantiles, axis=1), np.concatenate(means, axis=1), came, last
            )
            self._uses[horizon].add(-np.expm1(-hazards[:, :, horizon]), came > 0)
            if horizon == _BAND_HORIZON:
                self._draw(at_s, rows, bands[:, self._methods.index(MIXTURE)], came)

    def rows(self) -> tuple[BacktestRow, ...]:
        """Every method at every horizon, the mixture first."""
        names = dict.fromkeys((*self._methods, *self._use_methods))
        return tuple(
            BacktestRow(
                workload=self._plan.workload,
                method=name,
                horizon_s=horizon_s,
                arrivals=arrivals.score(self._methods.index(name))
                if name in self._methods
                else None,
                use=uses.score(self._use_methods.index(name))
                if name in self._use_methods
                else None,
                looks=arrivals.looks,
            )
            for horizon_s, arrivals, uses in zip(
                HORIZONS_S, self._arrivals, self._uses, strict=False
            )
            for name in names
        )

    def bands(self) -> tuple[Band, ...]:
        """The busiest models' bands."""
        return tuple(
            Band(
                model=self._history.models[row],
                at_s=tuple(at_s for at_s, _, _ in points),
                quantiles=tuple(quantiles for _, quantiles, _ in points),
                came=tuple(came for _, _, came in points),
            )
            for row, points in self._bands.items()
            if points
        )

    def losses(self) -> Mapping[str, Mapping[ModelId, float]]:
        """Scaled loss within five minutes of each method and model."""
        if not self._arrivals:
            return {}
        tally = self._arrivals[_BAND_HORIZON]
        return {
            name: {
                model: loss
                for model, loss in zip(
                    self._history.models, tally.losses_by_model(method).tolist(), strict=True
                )
                if math.isfinite(loss)
            }
            for method, name in enumerate(self._methods)
        }

    def _open(self, arrivals: ArrivalOpinions, uses: UseOpinions, boosted: Floats | None) -> None:
        floors = (NAIVE_LAST_VALUE, NAIVE_SEASONAL)
        # Here the challenger speaks for itself, in its own quantiles.
        self._asked = [n for n, name in enumerate(arrivals.methods) if name != BOOSTED]
        own = [arrivals.methods[n] for n in self._asked]
        named = tuple(name + BANDS if name in floors else name for name in own)
        self._methods = (*named, *floors, *((BOOSTED,) if boosted is not None else ()))
        self._use_methods = uses.methods
        unit = self._methods.index(NAIVE_SEASONAL)
        models = len(self._history.models)
        self._arrivals = [
            ArrivalTally(methods=len(self._methods), models=models, unit=unit) for _ in HORIZONS_S
        ]
        self._uses = [UseTally(len(self._use_methods)) for _ in HORIZONS_S]

    def _draw(self, at_s: float, rows: Rows, quantiles: Floats, came: Floats) -> None:
        for row, band, count in zip(rows.tolist(), quantiles.tolist(), came.tolist(), strict=True):
            if row in self._bands:
                self._bands[row].append((at_s, tuple(band), count))


def _looks(from_s: float, end_s: float) -> Iterator[tuple[float, tuple[int, ...]]]:
    """When to look, and at which horizons: those whose outcome lies within the history."""
    first_s = MINUTE_S * np.ceil(from_s / MINUTE_S)
    due: dict[float, list[int]] = {}
    for horizon, (length_s, stride_s) in enumerate(zip(HORIZONS_S, STRIDES_S, strict=True)):
        for at_s in np.arange(first_s, end_s - length_s + 0.5, stride_s).tolist():
            due.setdefault(at_s, []).append(horizon)
    for at_s in sorted(due):
        yield at_s, tuple(due[at_s])


def _hazards_within(uses: UseOpinions) -> Floats:
    """Hazard within each horizon: linear between the delays that are given."""
    delays = np.array(uses.delays_s)
    right = np.clip(np.searchsorted(delays, HORIZONS_S), 1, len(delays) - 1)
    share = (np.array(HORIZONS_S) - delays[right - 1]) / (delays[right] - delays[right - 1])
    left_of, right_of = uses.hazards[:, :, right - 1], uses.hazards[:, :, right]
    within: Floats = left_of + (right_of - left_of) * np.clip(share, 0.0, 1.0)
    return within
