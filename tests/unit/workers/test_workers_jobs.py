"""The runner that RQ calls, without RQ: a stand-in carries what a job carries."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from contracts.errors import Permanent, Transient
from contracts.jobs import CANCELLED
from simulator.clock import VirtualClock
from simulator.memory_jobs import MemoryInferenceGateway, MemoryJobQueue, MemoryJobResults
from simulator.memory_ports import MemoryForecastStore, MemorySnapshotStore
from workers import jobs as jobs_module
from workers.jobs import JobFailed, JobRunner
from workers.retry import Held
from workers.tools import Tools


class HurriedClock(VirtualClock):
    """Its sleeps end at once and are added up."""

    slept_s = 0.0

    async def sleep(self, duration_s: float) -> None:
        if duration_s < 1.0:  # longer ones are between two looks at whether a job is wanted
            self.slept_s += duration_s
        await super().sleep(0.0)


@pytest.fixture
def job(monkeypatch):
    job = SimpleNamespace(
        id="j1",
        origin="background",
        meta={},
        saved=0,
        retries_left=3,
        created_at=datetime.now(UTC) - timedelta(seconds=10),
    )

    def save_meta():
        job.saved += 1

    job.save_meta = save_meta
    monkeypatch.setattr(jobs_module, "get_current_job", lambda: job)
    return job


class Stage:
    """A runner over memory whose one kind of job does what a test says."""

    def __init__(self, act, *, time_scale=1.0):
        self.results, self.clock, self.runs, self.waited_s = (
            MemoryJobResults(),
            HurriedClock(),
            0,
            None,
        )

        async def handler(payload, context, tools):
            self.runs += 1
            self.waited_s = context.waited_s
            return await act(payload) if not isinstance(act, Exception) else _raise(act)

        @asynccontextmanager
        async def open_tools():
            yield Tools(
                clock=self.clock,
                results=self.results,
                jobs=MemoryJobQueue(),
                gateway=MemoryInferenceGateway(),
                snapshots=MemorySnapshotStore(),
                forecasts=MemoryForecastStore(),
                logs={},
            )

        self.runner = JobRunner(open_tools, time_scale=time_scale, kinds={"echo": handler})


def _put_back(stage):
    retry = stage.runner.run("echo", {})
    assert retry is not None
    return retry


def _raise(error):
    raise error


async def _echo(payload):
    return {"said": payload.get("say")}


def test_a_result_is_kept_once_and_a_second_run_does_not_work_again(job):
    stage = Stage(_echo)
    assert stage.runner.run("echo", {"say": 1}) is None
    assert stage.runner.run("echo", {"say": 2}) is None
    assert stage.runs == 1
    assert stage.results._results == {"j1": '{"said": 1}'}
    assert job.saved == 0


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "takes a kind and a payload"),
        (("echo", {}, 1), {}, "takes a kind and a payload"),
        (("echo", {}), {"x": 1}, "takes a kind and a payload"),
        ((7, {}), {}, "must be a text"),
        (("echo", "text"), {}, "must be a text"),
        (("delete", {}), {}, 'kind "delete": must be one of echo'),
    ],
)
def test_bad_arguments_end_the_job_with_a_reason_and_without_retries(job, args, kwargs, message):
    with pytest.raises(JobFailed, match=message):
        Stage(_echo).runner.run(*args, **kwargs)
    assert job.retries_left == 0
    assert message in job.meta["error"]


def test_a_passing_error_is_tried_again_later_and_counted(job):
    stage = Stage(Transient("429", retry_after_s=60.0), time_scale=30.0)
    retry = _put_back(stage)
    # A minute of our clock's time are two real seconds at thirty times the speed.
    assert retry.intervals == [2]
    assert not retry.enqueue_at_front
    assert job.meta == {"attempts": {"failures": 0, "refusals": 1, "holds": 0}, "error": "429"}
    assert job.retries_left == 3
    assert stage.waited_s == pytest.approx(300.0, abs=30.0)
    stage.runner.run("echo", {})
    assert job.meta["attempts"]["refusals"] == 2


def test_a_held_job_goes_back_to_the_front(job):
    retry = _put_back(Stage(Held("not_resident", after_s=5.0)))
    assert (retry.intervals, retry.enqueue_at_front) == ([5], True)
    assert job.meta["attempts"]["holds"] == 1


def test_a_short_hold_in_fast_time_is_no_busy_loop(job):
    assert _put_back(Stage(Held("not_resident", after_s=3.0), time_scale=10.0)).intervals == [1]


def test_a_lasting_error_ends_the_job(job):
    with pytest.raises(JobFailed, match="404: no such model"):
        Stage(Permanent("404: no such model")).runner.run("echo", {})
    assert job.retries_left == 0


def test_what_is_remembered_badly_counts_as_nothing(job):
    job.meta = {"attempts": {"failures": "many", "refusals": -1, "holds": 2}}
    Stage(Transient("500")).runner.run("echo", {})
    assert job.meta["attempts"] == {"failures": 1, "refusals": 0, "holds": 2}
    job.meta = {"attempts": "none"}
    Stage(Transient("500")).runner.run("echo", {})
    assert job.meta["attempts"]["failures"] == 1


def test_a_bug_is_not_hidden(job):
    with pytest.raises(ZeroDivisionError):
        Stage(ZeroDivisionError()).runner.run("echo", {})


def test_a_result_waits_for_the_store_to_come_back(job, monkeypatch):
    stage = Stage(_echo)
    tries = []

    async def flaky(job_id, result, commit=stage.results.commit):
        tries.append(job_id)
        if len(tries) < 4:
            raise Transient("Redis is away")
        return await commit(job_id, result)

    monkeypatch.setattr(stage.results, "commit", flaky)
    assert stage.runner.run("echo", {}) is None
    assert (len(tries), stage.runs, stage.clock.slept_s) == (4, 1, 1.5)


def test_a_store_that_stays_away_puts_the_job_back(job, monkeypatch):
    stage = Stage(_echo)
    monkeypatch.setattr(stage.results, "commit", lambda *_: _away())
    assert _put_back(stage).intervals == [2]
    assert stage.clock.slept_s == pytest.approx(119.5)


async def _away():
    raise Transient("Redis is away")


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_stop_breaks_the_job_off_and_puts_it_back_at_once(job, when):
    async def stuck(_payload):
        if when == "during":
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    stage = Stage(stuck)
    before = signal.signal(signal.SIGTERM, stage.runner.request_stop)
    try:
        if when == "before":
            stage.runner.request_stop(signal.SIGTERM, None)
        retry = _put_back(stage)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (retry.intervals, retry.enqueue_at_front) == ([0], True)
    assert job.meta["attempts"] == {"failures": 0, "refusals": 0, "holds": 0}


def test_a_cancellation_that_nobody_asked_for_is_not_taken_for_a_stop(job):
    async def cancelled(_payload):
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        Stage(cancelled).runner.run("echo", {})


def test_a_job_that_nobody_wants_any_more_is_broken_off(job):
    begun = []

    async def endless(payload):
        begun.append(payload)
        await stage.results.cancel("j1")
        await asyncio.Event().wait()

    stage = Stage(endless)
    with pytest.raises(JobFailed, match=CANCELLED):
        stage.runner.run("echo", {})
    assert begun == [{}]
    assert job.retries_left == 0


def test_a_store_that_is_away_says_nothing_of_whether_a_job_is_wanted(job, monkeypatch):
    looks, looked = 0, asyncio.Event()

    async def work(_payload):
        await looked.wait()
        return {}

    stage = Stage(work)

    async def away(_job_id):
        nonlocal looks
        looks += 1
        if looks == 3:
            looked.set()
        raise Transient("away")

    monkeypatch.setattr(stage.results, "is_cancelled", away)
    assert stage.runner.run("echo", {}) is None
