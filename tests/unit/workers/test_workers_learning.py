"""Maintenance of forecasts: judged, trained, put in place in one step, or left as it was."""

from __future__ import annotations

import asyncio
import math
import os

# Before scikit-learn is loaded: its threads would wait for each other on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

from contracts.config import PredictorConfig
from contracts.errors import Invalid, Transient
from contracts.events import (
    FirstTokenSent,
    LoadCause,
    ModelLoaded,
    PriorityClass,
    RequestCompleted,
    RequestReceived,
)
from contracts.ids import ModelId, NodeId, RequestId
from contracts.insights import BOOSTED, MIXTURE
from contracts.limits import ClassLimits
from contracts.profiles import LOAD_COLD, MeasuredProfile, Measures, Series
from contracts.reasons import Reason
from contracts.world import QueueStatus, WorldSnapshot
from predictor import batch_training
from predictor.batch_training import TreeSettings
from predictor.promotion import Verdict
from predictor.snapshot import Sealing, unseal
from simulator.clock import VirtualClock
from simulator.memory_insights import MemoryChampionStore, MemoryInsightStore
from simulator.memory_jobs import MemoryInferenceGateway, MemoryJobQueue, MemoryJobResults
from simulator.memory_ports import MemoryEventLog, MemoryForecastStore, MemorySnapshotStore
from simulator.memory_profiles import MemoryProfileStore
from workers import judging, learning
from workers.admission import ChoreAdmission, admit_chore
from workers.handlers import backtest, profiles, retrain
from workers.history import MAX_MODELS, read_requests
from workers.judging import Breaker
from workers.retry import Held, Stopped
from workers.tools import JobContext, Tools

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
NOW_S = 1_700_000_400.0
CONTEXT = JobContext(job_id="retrain-1", queue="maintenance", waited_s=0.0)
VERSIONS = {"numpy": "1"}


def received(at_s, model="a"):
    return RequestReceived(
        event_id=f"r{model}{at_s}",
        at_s=at_s,
        source="test",
        request_id=RequestId(f"{model}{at_s}"),
        model=ModelId(model),
        operation="chat",
        priority=PriorityClass.REALTIME,
        client="",
        stream=False,
    )


def completed(at_s, model="a", status=200):
    return RequestCompleted(
        event_id=f"c{model}{at_s}",
        at_s=at_s,
        source="test",
        request_id=RequestId(f"{model}{at_s}"),
        model=ModelId(model),
        status=status,
        duration_s=1.0,
        service_s=1.0,
        input_tokens=None,
        output_tokens=None,
    )


def loaded(at_s, model, load_s=3.0):
    return ModelLoaded(
        event_id=f"l{model}{at_s}",
        at_s=at_s,
        source="test",
        model=ModelId(model),
        node=NodeId("n"),
        cause=LoadCause.DEMAND,
        load_s=load_s,
        footprint_bytes=None,
    )


async def inline(function, *args):
    return function(*args)


def tools_of(**changed):
    values = {
        "clock": VirtualClock(NOW_S),
        "results": MemoryJobResults(),
        "jobs": MemoryJobQueue(),
        "gateway": MemoryInferenceGateway(),
        "snapshots": MemorySnapshotStore(),
        "forecasts": MemoryForecastStore(),
        "logs": {},
        "events": MemoryEventLog(),
        "insights": MemoryInsightStore(),
        "champions": MemoryChampionStore(),
        "profiles": MemoryProfileStore(),
        "versions": VERSIONS,
        "predictor": PredictorConfig(publish_s=300.0),
        "aside": inline,
    }
    return Tools(**{**values, **changed})


async def told(tools, *, hours=7.0, models=3):
    """Models that are used each ten, thirteen and sixteen minutes, and answer."""
    for number in range(models):
        at_s = NOW_S - hours * HOUR_S
        while at_s < NOW_S:
            events = received(at_s, f"m{number}"), completed(at_s + 1.0, f"m{number}")
            await tools.events.append(events)
            at_s += 600.0 + 180.0 * number


@pytest.fixture
def quick(monkeypatch):
    """Few, small trees, from few looks."""
    monkeypatch.setattr(batch_training, "GRID", (TreeSettings(iterations=3, leaves=4),))
    monkeypatch.setattr(batch_training, "LEAST_ROWS", 50)
    original = batch_training.Training.__init__
    monkeypatch.setattr(
        batch_training.Training,
        "__init__",
        lambda self, grid=batch_training.GRID: original(self, grid),
    )


def limits(slots, *, valid_until_s=NOW_S + 60.0):
    return ClassLimits(
        priority=PriorityClass.BACKGROUND,
        slots=slots,
        loadable=(),
        valid_until_s=valid_until_s,
        reason=Reason.PASS_THROUGH,
    )


def waiting(priority, *, taken_at_s=NOW_S):
    return WorldSnapshot(taken_at_s=taken_at_s, queues=(QueueStatus(priority=priority, waiting=1),))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, Reason.PASS_THROUGH),
        ({"others_running": 1, "waited_s": 1e6}, Reason.CLASS_SLOTS_FULL),
        ({"limits": limits(0)}, Reason.CLASS_SLOTS_FULL),
        ({"limits": limits(0), "waited_s": 6 * HOUR_S}, Reason.WAITED_LONGEST),
        ({"limits": limits(0, valid_until_s=NOW_S)}, Reason.PASS_THROUGH),
        ({"world": waiting(PriorityClass.REALTIME)}, Reason.HIGHER_CLASS_WAITS),
        ({"world": waiting(PriorityClass.BATCH)}, Reason.HIGHER_CLASS_WAITS),
        ({"world": waiting(PriorityClass.BACKGROUND), "limits": limits(1)}, Reason.PASS_THROUGH),
        (
            {"world": waiting(PriorityClass.REALTIME, taken_at_s=NOW_S - 31)},
            Reason.PASS_THROUGH,
        ),
    ],
)
def test_heavy_maintenance_is_let_in_like_background_work(given, reason):
    values = {"world": None, "limits": None, "waited_s": 0.0, "others_running": 0}
    found = admit_chore(**{**values, **given}, now_s=NOW_S, config=ChoreAdmission())
    held = reason in (Reason.CLASS_SLOTS_FULL, Reason.HIGHER_CLASS_WAITS)
    assert (found.admitted, found.reason) == (not held, reason)
    assert found.retry_after_s == (60.0 if held else 0.0)


async def test_the_log_is_told_without_names_that_were_made_up():
    log = MemoryEventLog()
    await log.append(
        (
            received(NOW_S - 20, "b"),
            received(NOW_S - 30, "a"),
            received(NOW_S - 9000, "a"),
            received(NOW_S - 10, "junk"),
            completed(NOW_S - 9, "junk", status=404),
            completed(NOW_S - 8, "a"),
            FirstTokenSent(
                event_id="f",
                at_s=NOW_S - 7,
                source="test",
                request_id=RequestId("x"),
                model=ModelId("b"),
                ttft_s=0.1,
            ),
        )
    )
    found = await read_requests(log, since_s=NOW_S - 3600.0)
    assert [event.model for event in found] == ["a", "b"]


async def test_a_request_that_the_log_tells_twice_counts_once():
    log = MemoryEventLog()
    await log.append((received(NOW_S - 20), received(NOW_S - 10), completed(NOW_S - 8, "a")))
    await log.append((received(NOW_S - 20), received(NOW_S - 10)))
    assert len(await read_requests(log, since_s=NOW_S - 3600.0)) == 2


async def test_of_many_models_the_same_ones_are_told(monkeypatch):
    log = MemoryEventLog(max_entries=10_000)
    for number in range(MAX_MODELS + 20):
        name = f"m{number}"
        await log.append((received(NOW_S - number - 1, name), completed(NOW_S, name)))
    found = await read_requests(log, since_s=0.0)
    assert len(found) == MAX_MODELS
    assert found == await read_requests(log, since_s=0.0)
    monkeypatch.setattr("workers.history.MAX_REQUESTS", 5)
    assert len(await read_requests(log, since_s=0.0)) <= 5


async def test_a_backtest_stores_its_table():
    tools = tools_of()
    await told(tools)
    summary = await backtest.run({}, CONTEXT, tools)
    (report,) = await tools.insights.backtests()
    assert (report.workload, report.champion, report.models) == ("events", MIXTURE, 3)
    assert report.made_at_s == NOW_S
    assert {score.method for score in report.scores} >= {MIXTURE, "naive_seasonal"}
    assert report.by_model
    assert all(math.isfinite(one.mixture) for one in report.by_model)
    assert summary["champion"] == MIXTURE
    found = summary["scaled_pinball"]
    assert isinstance(found, dict)
    assert list(found) == ["60", "300", "900", "3600"]
    assert await tools.champions.get() is None


async def test_a_retraining_puts_a_signed_challenger_in_place(quick, monkeypatch):
    tools = tools_of()
    await told(tools)
    summary = await retrain.run({}, CONTEXT, tools)
    assert summary["trained"] is True
    snapshot = await tools.champions.get()
    challenger = unseal(snapshot, Sealing(key=await tools.champions.key(), versions=VERSIONS))
    assert not challenger.promoted  # three small trees are worth nothing
    assert challenger.trained_until_s <= NOW_S
    (report,) = await tools.insights.backtests()
    assert report.champion == MIXTURE
    assert BOOSTED in {score.method for score in report.scores}


async def test_where_the_challenger_wins_it_takes_over_and_a_backtest_says_so(quick, monkeypatch):
    tools = tools_of()
    await told(tools)
    monkeypatch.setattr(
        judging, "decide", lambda scores, is_promoted: Verdict(promoted=True, reason="x")
    )
    await retrain.run({}, CONTEXT, tools)
    assert await learning.was_promoted(tools)
    assert (await backtest.run({}, CONTEXT, tools))["champion"] == BOOSTED


async def test_with_too_little_to_train_on_the_champion_stays():
    tools = tools_of()
    await told(tools, hours=6.5, models=1)
    summary = await retrain.run({}, CONTEXT, tools)
    assert summary["trained"] is False
    assert summary["champion"] == MIXTURE
    assert await tools.champions.get() is None


@pytest.mark.parametrize("handler", [backtest, retrain])
async def test_an_empty_log_is_nothing_to_judge(handler):
    assert await handler.run({}, CONTEXT, tools_of()) == {"skipped": learning.TOO_SHORT}


@pytest.mark.parametrize("handler", [backtest, retrain])
async def test_it_waits_until_nobody_waits(handler):
    tools = tools_of()
    await tools.snapshots.put_world(waiting(PriorityClass.REALTIME))
    with pytest.raises(Held) as held:
        await handler.run({}, CONTEXT, tools)
    assert held.value.after_s == 60.0


@pytest.mark.parametrize("handler", [backtest, retrain, profiles])
async def test_a_payload_and_a_worker_without_stores_are_refused(handler):
    with pytest.raises(Invalid, match="takes none"):
        await handler.run({"x": 1}, CONTEXT, tools_of())
    with pytest.raises(Invalid, match="this worker has no"):
        await handler.run({}, CONTEXT, tools_of(events=None))


async def test_a_queue_that_tells_nothing_holds_nobody():
    tools = tools_of()
    tools.jobs.fault = Transient("away")
    assert await backtest.run({}, CONTEXT, tools) == {"skipped": learning.TOO_SHORT}


async def test_a_snapshot_that_is_not_believed_counts_as_none():
    tools = tools_of()
    await told(tools, hours=6.5, models=1)
    await tools.champions.put(b"nonsense")
    assert not await learning.was_promoted(tools)
    assert tools.jobs.counts() == {}
    # A backtest sees to it that there is a good one again, once.
    for _ in range(2):
        assert (await backtest.run({}, CONTEXT, tools))["champion"] == MIXTURE
    assert tools.jobs.counts()["maintenance"]["queued"] == 1


async def test_a_job_that_is_cancelled_ends_at_the_next_look():
    tools = tools_of(aside=asyncio.to_thread)
    breaker, started, ended = Breaker(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def work():
        loop.call_soon_threadsafe(started.set)
        try:
            while True:
                breaker.progress(0.5)
        except Stopped:
            loop.call_soon_threadsafe(ended.set)
            raise

    running = asyncio.ensure_future(learning.broken_off_with(breaker, tools, work))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await ended.wait()
    assert breaker.share == 0.5


async def test_a_job_that_dies_before_the_last_step_leaves_the_champion(quick):
    tools = tools_of()
    await told(tools)
    await tools.champions.put(b"the one before")
    tools.insights.fault = None

    async def dies(function, *args):
        if function.__name__ == "seal":
            raise asyncio.CancelledError
        return function(*args)

    with pytest.raises(asyncio.CancelledError):
        await retrain.run(
            {}, CONTEXT, tools_of(events=tools.events, champions=tools.champions, aside=dies)
        )
    assert await tools.champions.get() == b"the one before"


async def test_profiles_of_models_that_nobody_uses_go_and_lost_ones_come_back():
    tools = tools_of()
    old, kept = (
        MeasuredProfile(
            model=ModelId(name),
            measures=(Measures(node=NodeId("n"), at_s=NOW_S - days * DAY_S),),
        )
        for name, days in (("old", 61), ("kept", 5))
    )
    await tools.profiles.put((old, kept))
    await tools.events.append(
        (
            loaded(NOW_S - 50, "lost", 3.0),
            loaded(NOW_S - 40, "lost", 5.0),
            loaded(NOW_S - 30, "lost", None),
            loaded(NOW_S - 30, "kept"),
            loaded(NOW_S - 70 * DAY_S, "gone"),
        )
    )
    found = await profiles.run({}, CONTEXT, tools)
    assert found == {"removed": ["old"], "rebuilt": ["lost"]}
    stored = await tools.profiles.get_all()
    assert set(stored) == {"kept", "lost"}
    (measures,) = stored[ModelId("lost")].measures
    assert measures.series[LOAD_COLD] == Series(values=(3.0, 5.0), count=2, at_s=NOW_S - 40)
    assert await profiles.run({}, CONTEXT, tools) == {"removed": [], "rebuilt": []}
