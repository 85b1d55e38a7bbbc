"""What a model's past says of its next minutes, gathered once for all who forecast from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from contracts.forecasts import HORIZONS_S
from predictor.models import naive, slot_profile
from predictor.models.boosted import Boosted, Challenger
from predictor.models.count_quantiles import to_root
from predictor.models.decayed_rates import SCALES_S, DecayedRates
from predictor.models.intents import Intents
from predictor.models.river_season import RiverSeason
from predictor.models.slot_profile import SlotProfile
from predictor.windows import CountWindow, Floats, Rows

BUCKET_S = 10.0
MINUTE_S = 60.0
_RECENT_BUCKETS = 432
"""72 minutes: the longest horizon, and a fifth of it until its outcome is looked at."""
_MINUTES = 24 * 60 + 62
"""A day and the longest horizon."""
_HOUR_S = 3600.0
_WEEK_S = 7 * naive.DAY_S
_LEAST = 1e-4
"""Counts below this are taken for it where logarithms are."""
_PLAIN = len(SCALES_S) - 1
_HOUR_SCALE = 2
_LENGTHS_S: Floats = np.array(HORIZONS_S)

POOLED_FEATURES = 12
RIVER_FEATURES: tuple[str, ...] = (
    *(f"last_{round(horizon_s)}_s" for horizon_s in HORIZONS_S),
    *(f"season_ago_{round(horizon_s)}_s" for horizon_s in HORIZONS_S),
    *(f"of_day_{round(horizon_s)}_s" for horizon_s in HORIZONS_S),
    *(f"of_hour_{round(horizon_s)}_s" for horizon_s in HORIZONS_S),
    *(f"rate_{round(scale_s)}_s" for scale_s in SCALES_S.tolist()),
    "picked",
    "listed",
    "hour_sin",
    "hour_cos",
    "day_sin",
    "day_cos",
    "week_sin",
    "week_cos",
)


@dataclass(frozen=True, slots=True)
class Sources:
    """Of n models, counts within each horizon as each source has them; (n, horizons).

    Attributes
    ----------
    rates_per_s : (n, scales)
    seasonal : (n, horizons)
        A day ago, else an hour ago, else not a number.
    holt_winters : (n, horizons)
        Not a number before a day is known.
    boosted : (n, horizons)
        By the challenger; not a number where there is none.
    intents : (n, 2)
        How fresh a sign is that the model, and any model, may be asked for; 0 to 1.
    """

    wall_s: float
    rates_per_s: Floats
    last: Floats
    hour_ago: Floats
    seasonal: Floats
    of_day: Floats
    of_hour: Floats
    holt_winters: Floats
    boosted: Floats
    intents: Floats

    def rate(self, scale: int) -> Floats:
        """Counts by the rate at one scale; (n, horizons)."""
        return self.rates_per_s[:, scale, None] * _LENGTHS_S

    def pooled(self, horizon: int) -> tuple[Floats, Floats]:
        """What the shared regression sees: (n, POOLED_FEATURES), and (n,) log plain counts."""
        length_s = HORIZONS_S[horizon]
        plain = np.log(np.maximum(self.rates_per_s[:, _PLAIN] * length_s, _LEAST))
        by_hour = self.rates_per_s[:, _HOUR_SCALE] * length_s
        ago = np.where(np.isnan(self.hour_ago[:, horizon]), by_hour, self.hour_ago[:, horizon])
        columns = [
            *(self.rates_per_s[:, scale] * length_s for scale in range(_PLAIN)),
            self.of_hour[:, horizon],
            self.of_day[:, horizon],
            (self.last[:, horizon] + 0.5 * by_hour) / 1.5,
            (ago + by_hour) / 2.0,
        ]
        ratios = np.log(np.maximum(np.stack(columns, axis=1), _LEAST)) - plain[:, None]
        ones = np.ones((len(plain), 1))
        size = 0.1 * plain[:, None]
        return np.concatenate([ones, ratios, size, self.intents], axis=1), plain

    def river(self) -> Floats:
        """What each model's own regression sees, (n, RIVER_FEATURES): roots and angles."""
        angles = 2.0 * np.pi * self.wall_s / np.array([_HOUR_S, naive.DAY_S, _WEEK_S])
        calendar = np.ravel(np.column_stack([np.sin(angles), np.cos(angles)]))
        seasonal = np.where(np.isnan(self.seasonal), self.last, self.seasonal)
        return np.concatenate(
            [
                to_root(self.last),
                to_root(seasonal),
                to_root(self.of_day),
                to_root(self.of_hour),
                to_root(self.rates_per_s * HORIZONS_S[-1]),
                self.intents,
                np.tile(calendar, (len(self.last), 1)),
            ],
            axis=1,
        )


class DemandSources:
    """Counts and what is made of them, for each row.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    rates : DecayedRates
        Kept by the owner.
    """

    def __init__(self, rows: int, rates: DecayedRates) -> None:
        self._rates = rates
        self._recent = CountWindow(width_s=BUCKET_S, buckets=_RECENT_BUCKETS, rows=rows)
        self._minutes = CountWindow(width_s=MINUTE_S, buckets=_MINUTES, rows=rows)
        self._days = SlotProfile(slot_profile.DAY, rows)
        self._hours = SlotProfile(slot_profile.HOUR, rows)
        self._season = RiverSeason(rows)
        self._boosted = Boosted(rows)
        self._intents = Intents(rows)
        self._utc_offset_s = 0.0

    @property
    def too_late(self) -> int:
        """Arrivals that came after their time was forgotten, so far."""
        return self._minutes.too_late

    @property
    def resets(self) -> int:
        """How often a season had to be started afresh."""
        return self._season.resets

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        for part in self._parts():
            part.grow(rows)

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        for part in self._parts():
            part.clear(row)

    def shorten(self, row: int, share: float) -> None:
        """The habits of ``row`` have changed: what was learned of them counts for this share."""
        self._days.shorten(row, share)
        self._hours.shorten(row, share)

    def rewind(self, now_s: float) -> None:
        """The clock was set back."""
        self._recent.rewind(now_s)
        self._minutes.rewind(now_s)
        self._intents.rewind(now_s)
        for part in (self._days, self._hours, self._season):
            part.rewind()

    def keep_to(self, utc_offset_s: float) -> None:
        """Clocks on the wall are so far ahead of UTC from now on."""
        self._utc_offset_s = utc_offset_s
        self._days.keep_to(utc_offset_s)

    def add(self, row: int, at_s: float) -> None:
        """A request came for ``row``."""
        self._recent.add(row, at_s)
        self._minutes.add(row, at_s)

    def pick(self, row: int, at_s: float) -> None:
        """Somebody chose the model of ``row``."""
        self._intents.pick(row, at_s)

    def list_all(self, at_s: float) -> None:
        """Somebody looked which models there are."""
        self._intents.list_all(at_s)

    def advance(self, rows: Rows, now_s: float, *, watched: bool) -> None:
        """Let time pass, and learn of whole slots."""
        self._recent.advance(now_s, watched=watched)
        self._minutes.advance(now_s, watched=watched)
        for part in (self._days, self._hours, self._season):
            part.advance(self._recent, rows, now_s)

    def take_challenger(self, challenger: Challenger | None) -> None:
        """Ask this one beside all others from now on; None: nobody."""
        self._boosted.take(challenger)

    def boosted_quantiles(self, rows: Rows, made_s: float) -> Floats:
        """What the challenger itself says; (n, horizons, levels)."""
        return self._boosted.quantiles(rows, made_s, self._minutes.matrix)

    def outcomes(self, rows: Rows, end_s: float, length_s: float) -> Floats:
        """What came in the ``length_s`` before ``end_s``; not a number where nobody knows."""
        return self._recent.totals(rows, end_s, length_s)

    def at(self, rows: Rows, made_s: float) -> Sources:
        """Everything of ``rows`` as of ``made_s``, the end of a whole bucket."""
        rates = self._rates.per_s(rows, made_s)
        plain = rates[:, _PLAIN]
        hour_ago = naive.ago(self._minutes, rows, made_s, _HOUR_S)
        day_ago = naive.ago(self._minutes, rows, made_s, naive.DAY_S)
        return Sources(
            wall_s=made_s + self._utc_offset_s,
            rates_per_s=rates,
            last=naive.last_value(self._recent, rows, made_s, rates[:, _HOUR_SCALE]),
            hour_ago=hour_ago,
            seasonal=np.where(np.isnan(day_ago), hour_ago, day_ago),
            of_day=self._days.expected(rows, made_s, _LENGTHS_S, plain),
            of_hour=self._hours.expected(rows, made_s, _LENGTHS_S, plain),
            holt_winters=self._season.expected(rows, made_s),
            boosted=self._boosted.expected(rows, made_s, self._minutes.matrix),
            intents=self._intents.freshness(rows, made_s),
        )

    def _parts(self) -> tuple[CountWindow | SlotProfile | RiverSeason | Boosted | Intents, ...]:
        return (
            self._recent,
            self._minutes,
            self._days,
            self._hours,
            self._season,
            self._boosted,
            self._intents,
        )
