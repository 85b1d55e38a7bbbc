"""When chores are due, and that each run is queued once."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.config import WorkersConfig
from contracts.errors import Invalid, Transient
from simulator.clock import VirtualClock
from simulator.memory_jobs import MemoryJobQueue
from workers.chores import Chores
from workers.queues import QUEUES
from workers.schedule import Chore, chores_of, due_run, next_runs

HOUR_S = 3600.0
NIGHTLY = Chore(kind="retention", cron="17 3 * * *")


def _at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_a_run_is_due_at_its_minute_and_is_named_after_it():
    due_s = _at("2026-03-10T03:17:00")
    assert due_run(NIGHTLY, after_s=due_s - HOUR_S, until_s=due_s - 0.001) is None
    run = due_run(NIGHTLY, after_s=due_s - HOUR_S, until_s=due_s)
    assert run is not None
    assert (run.job_id, run.due_at_s) == ("retention-20260310T031700Z", due_s)
    assert due_run(NIGHTLY, after_s=due_s, until_s=due_s + HOUR_S) is None


def test_of_missed_runs_only_the_last_counts():
    run = due_run(NIGHTLY, after_s=_at("2026-03-01T00:00:00"), until_s=_at("2026-03-10T12:00:00"))
    assert run is not None
    assert run.job_id == "retention-20260310T031700Z"


def test_a_line_is_read_in_its_zone_with_its_summer_time():
    berlin = Chore(kind="retention", cron="0 4 * * *", zone="Europe/Berlin")
    winter = due_run(berlin, after_s=_at("2026-01-10T00:00:00"), until_s=_at("2026-01-10T12:00:00"))
    summer = due_run(berlin, after_s=_at("2026-07-10T00:00:00"), until_s=_at("2026-07-10T12:00:00"))
    assert winter is not None
    assert summer is not None
    assert (winter.job_id, summer.job_id) == (
        "retention-20260110T030000Z",
        "retention-20260710T020000Z",
    )


@pytest.mark.parametrize(
    "chore", [Chore(kind="x", cron="61 * * * *"), Chore(kind="x", cron="* * * * *", zone="Mars/X")]
)
def test_a_bad_line_is_named(chore):
    with pytest.raises(Invalid, match="is no cron line"):
        due_run(chore, after_s=0.0, until_s=1e9)


def test_the_shipped_lines_can_be_read():
    for chore in chores_of(WorkersConfig()):
        assert due_run(chore, after_s=0.0, until_s=1.8e9) is not None


@given(start_s=st.floats(1.7e9, 1.9e9), looks=st.lists(st.floats(1.0, 7200.0), min_size=1))
def test_however_often_one_looks_each_hour_is_named_once(start_s, looks):
    hourly = Chore(kind="k", cron="0 * * * *")
    now_s, found = start_s, []
    for step_s in looks:
        run = due_run(hourly, after_s=now_s, until_s=now_s + step_s)
        now_s += step_s
        found += [run.job_id] if run else []
    assert len(found) == len(set(found))
    assert len(found) <= (now_s - start_s) / HOUR_S + 1


def test_two_workers_queue_a_run_once_and_one_that_was_missed_is_caught_up():
    clock = VirtualClock(_at("2026-03-10T05:00:00"))  # two hours after the run, all just started
    jobs = MemoryJobQueue(QUEUES)
    for chores in (Chores(jobs, clock, [NIGHTLY]), Chores(jobs, clock, [NIGHTLY])):
        chores.queue_due()
        chores.queue_due()
    assert jobs.counts()["maintenance"]["queued"] == 1
    assert jobs.status("retention-20260310T031700Z") is not None


async def test_a_run_that_could_not_be_queued_is_due_again():
    clock = VirtualClock(_at("2026-03-10T03:00:00"))
    jobs = MemoryJobQueue(QUEUES)
    chores = Chores(jobs, clock, [NIGHTLY])
    chores.queue_due()  # yesterday's is past the time to catch up
    assert jobs.counts()["maintenance"]["queued"] == 0
    await clock.advance(1800.0)
    jobs.fault = Transient("Redis is away")
    chores.queue_due()
    chores.queue_due()
    jobs.fault = None
    await clock.advance(60.0)
    chores.queue_due()
    assert jobs.counts()["maintenance"]["queued"] == 1


def test_the_schedule_is_configured_and_a_wrong_one_is_told_at_once():
    config = WorkersConfig(
        retention_cron="5 4 * * 1",
        backtest_cron="6 4 * * *",
        retrain_cron="off",
        profiles_cron="Off ",
        time_zone="Europe/Berlin",
    )
    assert chores_of(config) == (
        Chore(kind="retention", cron="5 4 * * 1", zone="Europe/Berlin"),
        Chore(kind="backtest", cron="6 4 * * *", zone="Europe/Berlin"),
    )
    assert [chore.kind for chore in chores_of(WorkersConfig())] == [
        *("retention", "backtest", "retrain", "profiles")
    ]
    with pytest.raises(Invalid, match="no cron line"):
        chores_of(WorkersConfig(retention_cron="nightly"))
    with pytest.raises(Invalid, match="Moon/Base"):
        chores_of(WorkersConfig(time_zone="Moon/Base"))


def test_the_next_run_and_the_last_one_are_told():
    weekly = Chore(kind="retrain", cron="7 4 * * 1", zone="Europe/Berlin")
    seldom = Chore(kind="seldom", cron="0 0 29 2 *")
    found, leap = next_runs([weekly, seldom], _at("2026-03-11T12:00:00"))
    assert found.next_at_s == _at("2026-03-16T03:07:00")
    assert found.last_at_s == _at("2026-03-09T03:07:00")
    assert found.last_job_id == "retrain-20260309T030700Z"
    assert (found.cron, found.time_zone) == ("7 4 * * 1", "Europe/Berlin")
    assert (leap.last_at_s, leap.last_job_id) == (None, None)
    assert leap.next_at_s == _at("2028-02-29T00:00:00")
