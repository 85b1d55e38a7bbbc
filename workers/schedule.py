"""When maintenance is due: cron lines, and one job id for each time that a line names. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from contracts.config import WorkersConfig
from contracts.errors import Invalid
from contracts.insights import NextRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """A job that runs again and again: ``cron`` as five fields, in ``zone``'s time."""

    kind: str
    cron: str
    zone: str = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRun:
    """One time that a chore is due. Whoever sees it names it alike, so it is queued once."""

    kind: str
    job_id: str
    due_at_s: float


OFF = "off"
"""A chore with this in place of a cron line is never done."""
_LOOK_BACK_S = 366 * 86_400.0
CATCH_UP_S = 6 * 3600.0
"""What fell due while no worker ran is still done this long after."""


def chores_of(config: WorkersConfig) -> tuple[Chore, ...]:
    """What is to be done again and again. Raises Invalid for a line or a zone that is none."""
    lines = {
        "retention": config.retention_cron,
        "backtest": config.backtest_cron,
        "retrain": config.retrain_cron,
        "profiles": config.profiles_cron,
    }
    chores = tuple(
        Chore(kind=kind, cron=cron, zone=config.time_zone)
        for kind, cron in lines.items()
        if cron.strip().lower() != OFF
    )
    for chore in chores:
        due_run(chore, after_s=0.0, until_s=1.0)
    return chores


def next_runs(chores: Sequence[Chore], now_s: float) -> tuple[NextRun, ...]:
    """When each chore is due next, and when it was last. Raises Invalid as ``due_run``."""
    found = []
    for chore in chores:
        last = due_run(chore, after_s=now_s - CATCH_UP_S - _LOOK_BACK_S, until_s=now_s)
        found.append(
            NextRun(
                kind=chore.kind,
                cron=chore.cron,
                time_zone=chore.zone,
                next_at_s=_next_s(chore, now_s),
                last_at_s=None if last is None else last.due_at_s,
                last_job_id=None if last is None else last.job_id,
            )
        )
    return tuple(found)


def due_run(chore: Chore, *, after_s: float, until_s: float) -> DueRun | None:
    """The last time in (``after_s``, ``until_s``] that the chore names; None when there is none.

    Of several missed ones only the last counts: a chore does not get more done by running
    once for every night that the machine was off.

    Raises
    ------
    Invalid
        The cron line or the zone cannot be read.
    """
    try:
        zone = ZoneInfo(chore.zone)
        start = datetime.fromtimestamp(until_s + 1.0, UTC).astimezone(zone)
        moment = next(CronSim(chore.cron, start, reverse=True), None)
    except (CronSimError, ZoneInfoNotFoundError, ValueError) as error:
        raise Invalid(f'"{chore.cron}" ({chore.zone}) is no cron line: {error}') from error
    if moment is None or not after_s < moment.timestamp() <= until_s:
        return None
    stamp = moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    return DueRun(kind=chore.kind, job_id=f"{chore.kind}-{stamp}", due_at_s=moment.timestamp())


def _next_s(chore: Chore, now_s: float) -> float | None:
    start = datetime.fromtimestamp(now_s, UTC).astimezone(ZoneInfo(chore.zone))
    moment = next(CronSim(chore.cron, start), None)
    return None if moment is None else moment.timestamp()
