"""Warm-up schedules: which windows run, and when the next begin. Pure.

A schedule begins by its cron line in the time of its zone, as cron does it: a time of day that a
change of the clocks leaves out comes right after the gap, and one that comes twice counts
once, the first time. It ends after its time to keep, or at a time of day in the same zone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import islice
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from contracts.config import WarmUpSchedule
from contracts.errors import Invalid
from contracts.ids import ModelId
from contracts.world import ScheduledUse

DAY_S = 86_400.0
LONGEST_KEEP_S = 7 * DAY_S
MAX_WINDOWS = 12_000
"""Beginnings of one schedule that are looked at: one a minute over a week and a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One time that a schedule names, or several of them that overlap."""

    schedule: WarmUpSchedule
    starts_at_s: float
    ends_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """What schedules say from ``made_at_s`` on, until the first window begins or ends.

    Attributes
    ----------
    active, coming : tuple of Window
        Those that run, and of each schedule the next one.
    """

    made_at_s: float = -math.inf
    until_s: float = -math.inf
    active: tuple[Window, ...] = ()
    coming: tuple[Window, ...] = ()

    def holds(self, now_s: float) -> bool:
        """Whether it may still be used. Not after the clock was set back."""
        return self.made_at_s <= now_s < self.until_s

    @property
    def quiet_until_s(self) -> float | None:
        """Until when the GPU is for others; None: it is not."""
        ends = [window.ends_at_s for window in self.active if window.schedule.yields]
        return max(ends, default=None)

    def uses(self, models: Iterable[ModelId]) -> Mapping[ModelId, ScheduledUse]:
        """For each model that a schedule names its window: one that runs, else the next."""
        found: dict[ModelId, ScheduledUse] = {}
        names = sorted(models)
        for windows in (self.active, self.coming):
            running: dict[ModelId, ScheduledUse] = {}
            for window in windows:
                for name in names:
                    if name not in found and is_named(name, window.schedule.models):
                        running[name] = _joined(running.get(name), window)
            found |= running
        return found


def is_named(model: ModelId, patterns: tuple[str, ...]) -> bool:
    """Whether one of these names or patterns is the model's."""
    return any(fnmatchcase(model, pattern) for pattern in patterns)


def timetable(schedules: tuple[WarmUpSchedule, ...], now_s: float) -> Timetable:
    """What holds at ``now_s``.

    Raises
    ------
    Invalid
        A cron line, a zone or a time of day cannot be read.
    """
    active: list[Window] = []
    coming: list[Window] = []
    for schedule in schedules:
        running: Window | None = None
        for window in _windows(schedule, now_s):
            if window.starts_at_s > now_s:
                coming.append(window)
                break
            if window.ends_at_s > now_s:
                first_s = window.starts_at_s if running is None else running.starts_at_s
                last_s = window.ends_at_s if running is None else running.ends_at_s
                running = Window(
                    schedule=schedule,
                    starts_at_s=first_s,
                    ends_at_s=max(last_s, window.ends_at_s),
                )
        if running is not None:
            active.append(running)
    edges = [window.ends_at_s for window in active] + [window.starts_at_s for window in coming]
    return Timetable(
        made_at_s=now_s,
        until_s=min(edges, default=math.inf),
        active=tuple(active),
        coming=tuple(coming),
    )


def checked(schedule: WarmUpSchedule) -> WarmUpSchedule:
    """The same; raises Invalid where it cannot be read, so that it is told when it is set."""
    timetable((schedule,), 0.0)
    return schedule


def _joined(known: ScheduledUse | None, window: Window) -> ScheduledUse:
    """Of windows that meet both together, else the earlier one."""
    own = ScheduledUse(starts_at_s=window.starts_at_s, ends_at_s=window.ends_at_s)
    if known is None:
        return own
    if window.starts_at_s > known.ends_at_s or known.starts_at_s > window.ends_at_s:
        return min(known, own, key=lambda use: use.starts_at_s)
    return ScheduledUse(
        starts_at_s=min(known.starts_at_s, own.starts_at_s),
        ends_at_s=max(known.ends_at_s, own.ends_at_s),
    )


def _windows(schedule: WarmUpSchedule, now_s: float) -> Iterator[Window]:
    """In order, from the first that could still run; bounded."""
    longest_s = schedule.keep_s if schedule.keep_s is not None else DAY_S
    if longest_s > LONGEST_KEEP_S:
        raise Invalid(f'schedule "{schedule.cron}": keeps for longer than a week')
    try:
        zone = ZoneInfo(schedule.zone)
        # An hour more: what a change of the clocks has put off began before.
        since = datetime.fromtimestamp(now_s - longest_s - 3600.0, UTC).astimezone(zone)
        moments = CronSim(_five_fields(schedule.cron), since)
        for moment in islice(moments, MAX_WINDOWS):
            start_s = moment.timestamp()
            yield Window(
                schedule=schedule, starts_at_s=start_s, ends_at_s=_end_s(schedule, moment, zone)
            )
    except (CronSimError, ZoneInfoNotFoundError, ValueError, OSError, OverflowError) as error:
        raise Invalid(f'schedule "{schedule.cron}" ({schedule.zone}): {error}') from error


def _five_fields(cron: str) -> str:
    if len(cron.split()) != 5:
        raise ValueError("a cron line has five fields")
    return cron


def _end_s(schedule: WarmUpSchedule, start: datetime, zone: ZoneInfo) -> float:
    if schedule.keep_s is not None:
        return start.timestamp() + schedule.keep_s
    if schedule.until is None:
        raise ValueError("says neither how long it lasts nor until when")
    hour, minute = _time_of_day(schedule.until)
    local = start.astimezone(zone)
    end = local.replace(hour=hour, minute=minute, second=0, fold=0)
    if end.timestamp() <= start.timestamp():
        end = (local.replace(tzinfo=None) + timedelta(days=1)).replace(
            hour=hour, minute=minute, second=0, tzinfo=zone
        )
    return end.timestamp()


def _time_of_day(text: str) -> tuple[int, int]:
    hour, colon, minute = text.partition(":")
    if colon and hour.isdecimal() and minute.isdecimal() and len(minute) == 2:
        whole = int(hour), int(minute)
        if whole[0] < 24 and whole[1] < 60:
            return whole
    raise ValueError(f'"{text}" is no time of day such as "18:00"')
