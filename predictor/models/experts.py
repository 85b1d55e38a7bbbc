"""The experts behind a next-use curve, and how their opinions are laid side by side.

Each says how much hazard lies within a delay: a model's own gaps, the minute of the hour, both
together (a job and people who use the same model add up), the time of day, the models that it
follows, how busy all models are just now, and its rate at several time scales. They are
compared with a plain one, the rate over the last day: an expert's feature is the logarithm of
how many times more it expects than that. So weights carry no unit, and a pool of any weights
still grows with the delay as hazards do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from contracts.errors import Invalid
from predictor.models.calendar_slots import DAY, HOUR, CalendarSlots
from predictor.models.decayed_rates import SCALES_S, DecayedRates
from predictor.models.following import Following
from predictor.models.gap_hazard import GapHazard
from predictor.windows import Floats, Rows

BIAS, OWN_GAPS, HOUR_SLOTS, EITHER, DAY_SLOTS, FOLLOWING, TRAFFIC, FIRST_RATE = range(8)
EXPERTS = FIRST_RATE + len(SCALES_S) - 1
"""The bias counts as one: it corrects what all have in common."""

ALL_BUT_OWN_GAPS = "pool"
NAMED: dict[str, tuple[int, ...]] = {
    "hour_slots": (HOUR_SLOTS, EITHER),
    "day_slots": (DAY_SLOTS,),
    "following": (FOLLOWING,),
    "traffic": (TRAFFIC,),
    "rates": tuple(range(FIRST_RATE, EXPERTS)),
    ALL_BUT_OWN_GAPS: tuple(expert for expert in range(EXPERTS) if expert != OWN_GAPS),
}
"""What can be left out: such experts have no opinion, so that the pool gives them no weight."""

ALONE: tuple[tuple[str, int], ...] = (
    ("hour_slots", HOUR_SLOTS),
    ("own_gaps_or_hour_slots", EITHER),
    ("day_slots", DAY_SLOTS),
    ("following", FOLLOWING),
    *(
        (f"rate_{round(scale_s)}_s", FIRST_RATE + scale)
        for scale, scale_s in enumerate(SCALES_S[:-1].tolist())
    ),
)
"""Those of them that say something by themselves, for who looks at each alone."""

JUST_USED_S = 60.0
"""Within a minute of a request other experts are right than in a long silence."""
CONTEXTS = 2

_LEAST = 1e-6
"""Hazards below this are taken for it: an expert may be sure, but not without end."""


@dataclass(frozen=True, slots=True)
class Opinions:
    """What the experts say at each delay.

    Attributes
    ----------
    base : (n, delays)
        Log hazard of the plain rate.
    features : (n, experts, delays)
        Log of how many times more each expert expects; 1 for the bias.
    own : (n, delays)
        Hazard by own gaps alone.
    contexts : (n,)
        0 after a silence, 1 for models that were just used.
    """

    base: Floats
    features: Floats
    own: Floats
    contexts: Rows


class Experts:
    """All experts for each row.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    rates : DecayedRates
        Kept by the owner.
    without : sequence of str
        Names of experts that are not asked.

    Raises
    ------
    Invalid
        There is no expert of such a name.
    """

    def __init__(self, rows: int, rates: DecayedRates, without: Sequence[str] = ()) -> None:
        unknown = [name for name in without if name not in NAMED]
        if unknown:
            raise Invalid(
                f"no expert {unknown[0]!r}; those that can be left out: {', '.join(NAMED)}"
            )
        self._silent = sorted({expert for name in without for expert in NAMED[name]})
        self._rates = rates
        self._gaps = GapHazard(rows)
        self._hour = CalendarSlots(HOUR, rows)
        self._day = CalendarSlots(DAY, rows)
        self._following = Following(rows)
        self._traffic = 0.0

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        self._gaps.grow(rows)
        self._hour.grow(rows)
        self._day.grow(rows)
        self._following.grow(rows)

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        self._gaps.clear(row)
        self._hour.clear(row)
        self._day.clear(row)
        self._following.clear(row)

    def rewind(self, now_s: float) -> None:
        """The clock was set back."""
        self._hour.rewind(now_s)
        self._day.rewind(now_s)
        self._following.rewind(now_s)

    def keep_to(self, utc_offset_s: float) -> None:
        """Clocks on the wall are so far ahead of UTC from now on."""
        self._day.keep_to(utc_offset_s)

    def arrive(self, row: int, at_s: float, gap_s: float | None) -> tuple[int, ...]:
        """A request came, ``gap_s`` after the one before (None: it is the first).

        Returns
        -------
        tuple of int
            Other rows that it lets expect.
        """
        self._hour.add(row, at_s)
        self._day.add(row, at_s)
        if gap_s is not None:
            self._gaps.learn(row, gap_s)
        return self._following.arrive(row, at_s)

    def straggle(self, row: int, at_s: float) -> None:
        """A request is told of late: it is counted, but no gap is, since its own is split."""
        self._hour.add(row, at_s)
        self._day.add(row, at_s)

    def advance(self, rows: Rows, now_s: float) -> None:
        """Let time pass, and look at how busy all of ``rows`` are."""
        self._hour.advance(now_s)
        self._day.advance(now_s)
        per_s = self._rates.per_s(rows, now_s).sum(axis=0)
        if len(rows):
            self._traffic = float(np.log(per_s[0] / per_s[-1]))

    def refresh_population(self, rows: Rows) -> None:
        """Renew what the models of ``rows`` have in common."""
        self._gaps.refresh_population(rows)

    def gaps(self, rows: Rows) -> Floats:
        """How many gaps each of ``rows`` has shown, faded."""
        return self._gaps.gaps(rows)

    def opinions(self, rows: Rows, ages_s: Floats, now_s: float, delays_s: Floats) -> Opinions:
        """What each says of ``rows``, which have been silent for ``ages_s``."""
        own = self._gaps.cumulative(rows, ages_s, delays_s)
        hour = self._hour.cumulative(rows, now_s, delays_s)
        day = self._day.cumulative(rows, now_s, delays_s)
        rates = self._rates.per_s(rows, now_s)
        base = np.log(rates[:, -1:] * delays_s)
        features = np.empty((len(rows), EXPERTS, len(delays_s)))
        features[:, BIAS] = 1.0
        features[:, OWN_GAPS] = np.log(np.maximum(own, _LEAST)) - base
        features[:, HOUR_SLOTS] = np.log(np.maximum(hour, _LEAST)) - base
        features[:, DAY_SLOTS] = np.log(np.maximum(day, _LEAST)) - base
        features[:, EITHER] = np.log(np.maximum(own + hour, _LEAST)) - base
        features[:, FOLLOWING] = 0.0
        places, following = self._following.cumulative(rows, now_s, delays_s, rates[:, -1])
        features[places, FOLLOWING] = np.log(np.maximum(following, _LEAST)) - base[places]
        features[:, TRAFFIC] = self._traffic
        features[:, FIRST_RATE:] = np.log(rates[:, :-1] / rates[:, -1:])[:, :, None]
        features[:, self._silent] = 0.0
        return Opinions(base, features, own, (ages_s < JUST_USED_S).astype(np.intp))
