"""Retention: what is trimmed and which forecasts go."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from contracts.batches import Batch, BatchStatus, FilePurpose, StoredFile
from contracts.errors import Invalid, Transient
from contracts.forecasts import (
    NEXT_USE_GRID_S,
    Forecast,
    ForecastStatus,
    ModelForecast,
    NextUse,
    Signal,
)
from contracts.ids import ModelId
from simulator.clock import VirtualClock
from simulator.memory_batches import MemoryBatchStore, MemoryFileStore, MemoryResultLog
from simulator.memory_jobs import (
    MemoryInferenceGateway,
    MemoryJobQueue,
    MemoryJobResults,
    MemoryTrimmable,
)
from simulator.memory_ports import MemoryForecastStore, MemorySnapshotStore
from workers.handlers.retention import forgotten, run
from workers.tools import JobContext, RetentionConfig, Tools

DAY_S = 86_400.0
NOW_S = 100 * DAY_S
CONTEXT = JobContext(job_id="retention-1", queue="maintenance", waited_s=0.0)


def _forecast(name, *, last_arrival_at_s=None, made_at_s=NOW_S, next_use=True, signals=()):
    model = ModelId(name)
    use = NextUse(
        model=model,
        made_at_s=made_at_s,
        expires_at_s=made_at_s + 60,
        last_arrival_at_s=last_arrival_at_s,
        cumulative_hazard=(0.0,) * len(NEXT_USE_GRID_S),
        method="gaps",
        status=ForecastStatus.READY,
        brier=None,
        floor_brier=None,
    )
    return ModelForecast(model=model, next_use=use if next_use else None, signals=signals)


def _tools(logs, forecasts, config=None):
    return Tools(
        clock=VirtualClock(NOW_S),
        results=MemoryJobResults(),
        jobs=MemoryJobQueue(),
        gateway=MemoryInferenceGateway(),
        snapshots=MemorySnapshotStore(),
        forecasts=forecasts,
        logs=logs,
        retention=config or RetentionConfig(max_entries={"events": 3, "decisions": 9}),
    )


def test_a_model_is_forgotten_by_its_last_request_else_by_its_last_forecast():
    old_s, made_s = NOW_S - 31 * DAY_S, NOW_S - 29 * DAY_S
    signal = Forecast(
        model=ModelId("s"),
        signal=Signal.ARRIVALS,
        made_at_s=made_s,
        expires_at_s=made_s + 60,
        horizons=(),
    )
    forecasts = {
        forecast.model: forecast
        for forecast in (
            _forecast("unused", last_arrival_at_s=old_s),
            _forecast("used", last_arrival_at_s=NOW_S - 29 * DAY_S, made_at_s=old_s),
            _forecast("never-made-again", made_at_s=old_s),
            _forecast("fresh"),
            _forecast("signal-only", next_use=False, signals=(signal,)),
            _forecast("empty", next_use=False),
        )
    }
    gone = forgotten(forecasts, now_s=NOW_S, max_age_s=30 * DAY_S)
    assert gone == ("empty", "never-made-again", "unused")


async def test_it_trims_by_age_and_number_and_reports_what_went():
    events = MemoryTrimmable((20 * DAY_S, 13 * DAY_S, 9.0, 8.0, 7.0))
    decisions = MemoryTrimmable((20 * DAY_S, 1.0))
    forecasts = MemoryForecastStore()
    await forecasts.put((_forecast("unused", last_arrival_at_s=1.0), _forecast("fresh")))
    tools = _tools({"events": events, "decisions": decisions}, forecasts)
    report = await run({}, CONTEXT, tools)
    assert report == {
        "trimmed": {"events": 2, "decisions": 1},
        "forecasts_removed": ["unused"],
        "batches_removed": 0,
        "files_removed": 0,
    }
    assert events.ages_s == [9.0, 8.0, 7.0]
    assert set(await forecasts.get_all()) == {"fresh"}
    assert await run({}, CONTEXT, tools) == {
        "trimmed": {"events": 0, "decisions": 0},
        "forecasts_removed": [],
        "batches_removed": 0,
        "files_removed": 0,
    }


async def test_it_takes_no_payload_and_knows_each_log():
    with pytest.raises(Invalid, match='unknown "days"'):
        await run({"days": 1}, CONTEXT, _tools({}, MemoryForecastStore()))
    with pytest.raises(Invalid, match='log "audit"'):
        await run({}, CONTEXT, _tools({"audit": MemoryTrimmable()}, MemoryForecastStore()))


async def test_an_outage_is_told_so_that_the_job_is_tried_again():
    log = MemoryTrimmable((1.0,))
    log.fault = Transient("Redis is away")
    with pytest.raises(Transient):
        await run({}, CONTEXT, _tools({"events": log}, MemoryForecastStore()))


def _batch(batch_id, status, *, ended_s=None, input_file_id="file-none"):
    return Batch(
        batch_id=batch_id,
        endpoint="/v1/embeddings",
        input_file_id=input_file_id,
        completion_window="24h",
        status=status,
        created_at_s=0.0,
        expires_at_s=DAY_S,
        reached_at_s={} if ended_s is None else {status: ended_s},
    )


async def test_batches_and_files_go_when_their_time_is_over_and_nobody_needs_them():
    batches, files, results = MemoryBatchStore(), MemoryFileStore(), MemoryResultLog()
    for batch in (
        _batch("batch_old", BatchStatus.COMPLETED, ended_s=NOW_S - 31 * DAY_S),
        _batch("batch_new", BatchStatus.COMPLETED, ended_s=NOW_S - 29 * DAY_S),
        _batch("batch_open", BatchStatus.IN_PROGRESS, input_file_id="file-needed"),
    ):
        await batches.add(batch)
    results.begin("batch_old").append(1, b"+")
    for name, expires_at_s in (
        ("file-over", NOW_S),
        ("file-needed", NOW_S - 1.0),
        ("file-good", NOW_S + 1.0),
        ("file-kept", None),
    ):
        files.add(
            StoredFile(
                file_id=name,
                filename="x",
                purpose=FilePurpose.BATCH,
                size_bytes=0,
                created_at_s=0.0,
                expires_at_s=expires_at_s,
            ),
            io.BytesIO(b"x"),
        )
    tools = replace(
        _tools({}, MemoryForecastStore()), batches=batches, files=files, line_results=results
    )
    report = await run({}, CONTEXT, tools)
    assert (report["batches_removed"], report["files_removed"]) == (1, 1)
    assert {b.batch_id for b in await batches.list()} == {"batch_new", "batch_open"}
    assert {f.file_id for f in files.list()} == {"file-needed", "file-good", "file-kept"}
    assert list(results.records("batch_old")) == []
