"""Error budgets: how many requests may miss their target, and when no more may. Pure."""

from __future__ import annotations

from dataclasses import dataclass

WEEK_S = 604_800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Requests that were held against their target, and those of them that met it."""

    judged: int
    met: int

    @property
    def missed(self) -> int:
        """Those that did not."""
        return self.judged - self.met

    @property
    def missed_ratio(self) -> float | None:
        """None: nothing was judged."""
        return self.missed / self.judged if self.judged else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The error budget of one model over a week.

    Attributes
    ----------
    allowed_ratio : float
        Share of requests that may miss: what the percentile leaves over.
    remaining_ratio : float or None
        What is left of the budget; below 0 it is overdrawn. None: nothing was judged.
    burn_1h, burn_6h : float or None
        How fast it is spent: at 1 it lasts exactly as long as the window; None: nothing was judged.
    exhausted_in_s : float or None
        When it will be spent, if the next hours miss as the last one did (or, without a
        request in it, the last six). None: never at that rate, or nothing is known.
    expected_ratio : float or None
        Share that will have met the target an hour from now, if as many come as are forecast.
    breach : bool or None
        Whether the target is, or within a day is going to be, missed. None: nothing is known.
    """

    allowed_ratio: float
    judged: int
    missed: int
    remaining_ratio: float | None
    burn_1h: float | None
    burn_6h: float | None
    exhausted_in_s: float | None
    expected_ratio: float | None
    breach: bool | None


def budget(
    percentile: float,
    *,
    week: Judged,
    six_hours: Judged,
    hour: Judged,
    expected_requests_1h: float | None,
) -> Budget:
    """What is left of it, how fast it goes, and when it is gone.

    Parameters
    ----------
    percentile : float
        Of the target: so many percent of requests are to meet it.
    expected_requests_1h : float or None
        Requests forecast for the next hour; None: the last hour's are taken.
    """
    allowed = 1.0 - percentile / 100.0
    recent = hour if hour.judged else six_hours
    rate_h = _per_hour(hour, six_hours, expected_requests_1h)
    remaining = None
    if week.judged:
        remaining = 1.0 - week.missed / (allowed * week.judged)
    gone_in_s = _exhausted_in_s(allowed, week, recent.missed_ratio, rate_h)
    return Budget(
        allowed_ratio=allowed,
        judged=week.judged,
        missed=week.missed,
        remaining_ratio=remaining,
        burn_1h=_burn(hour, allowed),
        burn_6h=_burn(six_hours, allowed),
        exhausted_in_s=gone_in_s,
        expected_ratio=_expected(week, recent.missed_ratio, rate_h),
        breach=None
        if remaining is None
        else remaining <= 0.0 or (gone_in_s is not None and gone_in_s <= 86_400.0),
    )


def _burn(part: Judged, allowed: float) -> float | None:
    missed = part.missed_ratio
    return None if missed is None else missed / allowed


def _per_hour(hour: Judged, six_hours: Judged, forecast: float | None) -> float:
    if forecast is not None:
        return forecast
    return float(hour.judged) if hour.judged else six_hours.judged / 6.0


def _exhausted_in_s(
    allowed: float, week: Judged, missed_ratio: float | None, rate_h: float
) -> float | None:
    """Each hour adds to what is allowed and to what is missed; the second may be faster."""
    if not week.judged or missed_ratio is None:
        return None
    left = allowed * week.judged - week.missed
    if left <= 0.0:
        return 0.0
    per_hour = rate_h * (missed_ratio - allowed)
    if per_hour <= 0.0:
        return None
    gone_in_s = 3600.0 * left / per_hour
    return gone_in_s if gone_in_s <= WEEK_S else None


def _expected(week: Judged, missed_ratio: float | None, rate_h: float) -> float | None:
    if not week.judged or missed_ratio is None:
        return None
    return (week.met + rate_h * (1.0 - missed_ratio)) / (week.judged + rate_h)
