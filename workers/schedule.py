"""When maintenance is due: cron lines, and one job id for each time that a line names. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from contracts.config import WorkersConfig
from contracts.errors import Invalid


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


CATCH_UP_S = 6 * 3600.0
"""What fell due while no worker ran is still done this long after."""


def chores_of(config: WorkersConfig) -> tuple[Chore, ...]:
    """What is to be done again and again. Raises Invalid for a line or a zone that is none."""
    chores = (Chore(kind="retention", cron=config.retention_cron, zone=config.time_zone),)
    for chore in chores:
        due_run(chore, after_s=0.0, until_s=1.0)
    return chores


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
