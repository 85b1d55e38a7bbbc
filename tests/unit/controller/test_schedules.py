"""Warm-up schedules in virtual time: which window runs, in which zone, over changes of clocks."""

from __future__ import annotations

import itertools
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from contracts.config import WarmUpSchedule
from contracts.errors import Invalid
from contracts.ids import ModelId
from contracts.world import ScheduledUse
from controller.schedules import LONGEST_KEEP_S, Timetable, Window, checked, timetable

HOUR_S = 3600.0
A, B = ModelId("chat-a"), ModelId("chat-b")


def at(text: str, zone: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def schedule(cron: str, zone: str = "UTC", **fields: object) -> WarmUpSchedule:
    told: dict[str, object] = {"keep_s": 600.0, "models": ("chat-*",), **fields}
    return WarmUpSchedule(cron=cron, zone=zone, **told)  # type: ignore[arg-type]  # the test's own


def begins(rule: WarmUpSchedule, since_s: float, until_s: float) -> list[str]:
    """The beginnings of all windows in this time, looked at as a controller does: at each edge."""
    found: list[float] = []
    now_s = since_s
    while now_s < until_s:
        table = timetable((rule,), now_s)
        assert table.holds(now_s)
        found += [w.starts_at_s for w in table.active if w.starts_at_s not in found]
        now_s = table.until_s
    zone = ZoneInfo(rule.zone)
    return [datetime.fromtimestamp(start_s, zone).strftime("%d %H:%M") for start_s in found]


@pytest.mark.case("P121")
@pytest.mark.parametrize("zone", ["Australia/Sydney", "Pacific/Auckland", "Europe/London", "UTC"])
@pytest.mark.parametrize(("cron", "every_s"), [("7 * * * *", 3600), ("*/5 * * * *", 300)])
def test_a_periodic_rule_keeps_its_period_in_every_zone(zone: str, cron: str, every_s: int):
    now_s = at("2026-07-10T12:00", zone)
    starts = []
    for _ in range(5):
        (coming,) = timetable((schedule(cron, zone, keep_s=60.0),), now_s).coming
        starts.append(coming.starts_at_s)
        now_s = coming.starts_at_s
    assert 0 < starts[0] - at("2026-07-10T12:00", zone) <= every_s
    assert [after - before for before, after in itertools.pairwise(starts)] == ([every_s] * 4)


@pytest.mark.case("P122")
def test_a_time_of_day_in_a_zone_comes_once_a_day():
    rule = schedule("1 12 * * *", "Europe/Paris")
    since_s = at("2026-07-01T00:00", "Europe/Paris")
    assert begins(rule, since_s, since_s + 48 * HOUR_S) == ["01 12:01", "02 12:01"]


@pytest.mark.case("P123")
@pytest.mark.parametrize(
    ("rule", "since", "until", "expected"),
    [
        (
            schedule("0 8 * * *", "Europe/Dublin"), "2025-10-25", "2025-10-29",
            ["25 08:00", "26 08:00", "27 08:00", "28 08:00"],
        ),
        (
            schedule("0 8 * * *", "Europe/Dublin"), "2026-03-28", "2026-04-01",
            ["28 08:00", "29 08:00", "30 08:00", "31 08:00"],
        ),
        (
            schedule("30 2 * * *", "America/New_York"), "2025-11-01", "2025-11-04",
            ["01 02:30", "02 02:30", "03 02:30"],
        ),
        (  # the hour from two to three is left out that night: right after the gap
            schedule("30 2 * * *", "America/New_York"), "2026-03-07", "2026-03-10",
            ["07 02:30", "08 03:00", "09 02:30"],
        ),
        (  # the hour from one to two comes twice that night: the first time alone
            schedule("30 1 * * *", "America/New_York"), "2025-11-01", "2025-11-04",
            ["01 01:30", "02 01:30", "03 01:30"],
        ),
    ],
)  # fmt: skip
def test_local_time_rules_over_changes_of_the_clocks(rule, since, until, expected):
    assert begins(rule, at(since, rule.zone), at(until, rule.zone)) == expected


def test_a_window_that_began_before_runs_until_its_time_to_keep_is_over():
    rule = schedule("0 8 * * *", keep_s=HOUR_S)
    start_s = at("2026-05-05T08:00", "UTC")
    table = timetable((rule,), start_s + 30.0)
    assert table.active == (Window(schedule=rule, starts_at_s=start_s, ends_at_s=start_s + HOUR_S),)
    assert table.until_s == start_s + HOUR_S
    over = timetable((rule,), start_s + HOUR_S)
    assert over.active == ()
    assert [window.starts_at_s for window in over.coming] == [start_s + 24 * HOUR_S]


@pytest.mark.parametrize(
    ("cron", "until", "now", "ends"),
    [
        ("0 8 * * *", "18:00", "2026-05-05T09:00", "2026-05-05T18:00"),
        ("0 22 * * *", "6:30", "2026-05-06T01:00", "2026-05-06T06:30"),
        ("0 22 * * *", "22:00", "2026-05-05T23:00", "2026-05-06T22:00"),
        # Over the changes of clocks the end is the local time that is said.
        ("0 22 * * *", "06:30", "2026-03-29T01:00", "2026-03-29T06:30"),
        ("0 22 * * *", "06:30", "2026-10-25T01:00", "2026-10-25T06:30"),
    ],
)
def test_a_window_ends_at_a_time_of_day(cron, until, now, ends):
    rule = schedule(cron, "Europe/Berlin", keep_s=None, until=until)
    (window,) = timetable((rule,), at(now, "Europe/Berlin")).active
    assert window.ends_at_s == at(ends, "Europe/Berlin")


def test_windows_of_one_rule_that_overlap_are_one():
    rule = schedule("*/5 * * * *", keep_s=600.0)
    now_s = at("2026-05-05T08:02", "UTC")
    (window,) = timetable((rule,), now_s).active
    assert window.starts_at_s == at("2026-05-05T07:55", "UTC")
    assert window.ends_at_s == at("2026-05-05T08:10", "UTC")


def test_a_model_has_the_window_that_runs_or_else_the_next():
    now_s = at("2026-05-05T08:30", "UTC")
    table = timetable(
        (
            schedule("0 8 * * *", keep_s=HOUR_S, models=("chat-a",)),
            schedule("15 8 * * *", keep_s=2 * HOUR_S, models=("chat-a",)),
            schedule("0 12 * * *", models=("chat-*",)),
            schedule("0 11 * * *", models=("chat-b",)),
            schedule("0 9 * * *", models=("whisper",)),
        ),
        now_s,
    )
    assert table.uses((A, B)) == {
        A: ScheduledUse(
            starts_at_s=at("2026-05-05T08:00", "UTC"), ends_at_s=at("2026-05-05T10:15", "UTC")
        ),
        B: ScheduledUse(
            starts_at_s=at("2026-05-05T11:00", "UTC"), ends_at_s=at("2026-05-05T11:10", "UTC")
        ),
    }


def test_the_gpu_is_left_to_others_while_a_rule_says_so():
    now_s = at("2026-05-05T23:30", "UTC")
    quiet = schedule("0 23 * * *", keep_s=None, until="07:00", models=(), yields=True)
    assert timetable((quiet, schedule("0 23 * * *")), now_s).quiet_until_s == (
        at("2026-05-06T07:00", "UTC")
    )
    assert timetable((schedule("0 23 * * *"),), now_s).quiet_until_s is None


def test_a_table_does_not_hold_after_the_clock_was_set_back_nor_past_its_edge():
    now_s = at("2026-05-05T08:30", "UTC")
    table = timetable((schedule("0 9 * * *"),), now_s)
    assert table.holds(now_s)
    assert not table.holds(now_s - 1.0)
    assert not table.holds(at("2026-05-05T09:00", "UTC"))
    assert not Timetable().holds(now_s)


def test_without_schedules_a_table_holds_for_good():
    table = timetable((), 0.0)
    assert table.holds(1e12)
    assert table.uses((A,)) == {}


def test_a_rule_that_never_comes_says_nothing():
    assert timetable((schedule("0 0 */30 2 2#3"),), at("2026-01-01T00:00", "UTC")).active == ()


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (schedule("0 8 * *"), "five fields"),
        (schedule("0 0 8 * * *"), "five fields"),
        (schedule("0 25 * * *"), "hour"),
        (schedule("0 8 * * *", "Mars/Olympus"), "Mars/Olympus"),
        (schedule("0 8 * * *", "../../etc/passwd"), "passwd"),
        (schedule("0 8 * * *", keep_s=LONGEST_KEEP_S + 1), "week"),
        (schedule("0 8 * * *", keep_s=None), "neither"),
        (schedule("0 8 * * *", keep_s=None, until="24:00"), "time of day"),
        (schedule("0 8 * * *", keep_s=None, until="8:60"), "time of day"),
        (schedule("0 8 * * *", keep_s=None, until="8:5"), "time of day"),
        (schedule("0 8 * * *", keep_s=None, until="evening"), "time of day"),
    ],
)
def test_what_cannot_be_read_is_told(rule, says):
    with pytest.raises(Invalid, match=says):
        checked(rule)


def test_what_can_be_read_is_given_back():
    assert checked(schedule("0 8 * * MON-FRI")) == schedule("0 8 * * MON-FRI")
