"""What befalls a batch under way: it is cancelled, expires, changes hands, loses its stores."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from contracts.batches import Batch, BatchStatus, LineCounts
from contracts.errors import Transient
from contracts.ports import Exchange
from tests.batch_stage import START_S, Stage, lines, said
from workers.batches import run as batch_run
from workers.batches.lines import read_lines
from workers.batches.run import TURN_S, BatchRun
from workers.retry import Turn


async def test_a_cancelled_batch_keeps_what_is_done():
    stage = Stage(lines("a", "a", "a"))
    stage.gateway.gate = asyncio.Event()
    stage.gateway.gate.set()
    done = 0

    def script(_path: str, _body: bytes) -> Exchange:
        nonlocal done
        done += 1
        assert stage.gateway.gate is not None
        stage.gateway.gate.clear()
        return said("a")

    stage.gateway.script = script
    await stage.batches.add(stage.batch)
    run = asyncio.ensure_future(BatchRun("batch_1", "w", stage.tools).take_turn())
    await stage.clock.advance(1.5)
    running = await stage.now()
    await stage.batches.replace(replace(running, status=BatchStatus.CANCELLING))
    batch = await stage.clock.run(run)
    assert batch is not None
    assert (batch.status, batch.counts) == (
        BatchStatus.CANCELLED,
        LineCounts(total=3, completed=1),
    )
    assert stage.gateway.cancelled == 1, "what ran was broken off"
    assert len(stage.read(batch.output_file_id)) == 1
    assert batch.error_file_id is None


async def test_what_is_not_done_in_its_window_expires_with_an_error_for_each_line():
    stage = Stage(lines("a", "b", "c"))
    stage.batch = replace(stage.batch, expires_at_s=START_S + 100.0)
    stage.gateway.script = lambda _path, body: (
        said("a") if b'"a"' in body else said("busy", 429, retry_after_s=20.0)
    )
    batch = await stage.turn()
    assert (batch.status, batch.counts) == (
        BatchStatus.EXPIRED,
        LineCounts(total=3, completed=1, failed=2),
    )
    errors = stage.read(batch.error_file_id)
    assert [line["error"]["code"] for line in errors] == ["batch_expired"] * 2
    assert [line["response"] for line in errors] == [None, None]


async def test_a_run_that_dies_is_gone_on_with_and_nothing_is_sent_twice():
    stage = Stage(lines(*"aaaa"))
    sent = 0

    def script(_path: str, _body: bytes) -> Exchange:
        nonlocal sent
        sent += 1
        if sent == 3:
            stage.gateway.gate = asyncio.Event()
        return said("a")

    stage.gateway.script = script
    await stage.batches.add(stage.batch)
    run = asyncio.ensure_future(BatchRun("batch_1", "w1", stage.tools).take_turn())
    await stage.clock.advance(0.5)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    stage.gateway.gate = None
    batch = await stage.turn("w2")
    assert batch.counts == LineCounts(total=4, completed=4)
    assert len(stage.read(batch.output_file_id)) == 4
    assert sent == 4


async def test_a_line_that_two_runs_did_is_there_once():
    stage = Stage(lines("a", "a"))
    segment = stage.results.begin("batch_1")
    segment.append(1, b'+{"custom_id":"c0","first":true}')
    segment.append(1, b'-{"custom_id":"c0","first":false}')
    other = stage.results.begin("batch_1")
    other.append(1, b'+{"custom_id":"c0","first":false}')
    stage.batch = replace(stage.batch, status=BatchStatus.IN_PROGRESS, counts=LineCounts(total=2))
    batch = await stage.turn()
    out = stage.read(batch.output_file_id)
    assert [line["custom_id"] for line in out] == ["c0", "c1"]
    assert out[0]["first"] is True
    assert batch.error_file_id is None


async def test_the_record_tells_how_far_it_is_and_how_fast(monkeypatch):
    stage = Stage(lines(*"a" * 100))
    answered = 0

    async def exchange(_path: str, _body: bytes, _headers: Mapping[str, str]) -> Exchange:
        nonlocal answered
        await stage.clock.sleep(1.0)
        answered += 1
        return said("a")

    monkeypatch.setattr(stage.gateway, "exchange", exchange)
    await stage.batches.add(stage.batch)
    run = asyncio.ensure_future(BatchRun("batch_1", "w", stage.tools).take_turn())
    await stage.clock.advance(50.0)
    batch = await stage.now()
    assert 45 <= batch.counts.completed <= answered <= 50
    assert batch.lines_per_s == pytest.approx(1.0, rel=0.1)
    assert (await stage.clock.run(run)).lines_per_s is None  # type: ignore[union-attr]


async def test_after_its_turn_another_batch_goes_first_and_alone_it_goes_on():
    stage = Stage(lines("a"))
    stage.gateway.gate = asyncio.Event()
    await stage.batches.add(stage.batch)
    run = asyncio.ensure_future(BatchRun("batch_1", "w", stage.tools).take_turn())
    await stage.clock.advance(TURN_S + 10.0)
    assert not run.done()
    await stage.batches.add(replace(stage.batch, batch_id="batch_2"))
    await stage.clock.advance(5.0)
    with pytest.raises(Turn, match="other batches wait"):
        await run
    assert stage.gateway.cancelled == 1
    assert await stage.batches.take("batch_1", "w2", hold_s=1.0), "it is free for others"


async def test_two_workers_never_have_one_batch():
    stage = Stage(lines("a"))
    await stage.batches.add(stage.batch)
    assert await stage.batches.take("batch_1", "other", hold_s=30.0)
    with pytest.raises(Turn, match="another worker"):
        await BatchRun("batch_1", "w", stage.tools).take_turn()


async def test_one_whose_hold_was_lost_stops():
    stage = Stage(lines("a"))
    stage.gateway.gate = asyncio.Event()
    await stage.batches.add(stage.batch)
    run = asyncio.ensure_future(BatchRun("batch_1", "w", stage.tools).take_turn())
    await stage.clock.advance(1.0)
    await stage.batches.let_go("batch_1", "w")
    assert await stage.batches.take("batch_1", "other", hold_s=30.0)
    await stage.clock.advance(3.0)
    with pytest.raises(Turn, match="taken this batch"):
        await run


async def test_a_store_that_is_away_does_not_stop_the_lines():
    stage = Stage(lines("a", "a"))
    stage.gateway.gate = asyncio.Event()
    await stage.batches.add(stage.batch)
    run = asyncio.ensure_future(BatchRun("batch_1", "w", stage.tools).take_turn())
    await stage.clock.advance(1.0)
    stage.batches.fault = stage.snapshots.fault = Transient("away")
    await stage.clock.advance(TURN_S + 5.0)
    assert not run.done()
    stage.batches.fault = stage.snapshots.fault = None
    stage.gateway.gate.set()
    assert (await stage.clock.run(run)).counts.completed == 2  # type: ignore[union-attr]


async def test_a_full_disk_is_told_and_nothing_counts_as_done():
    stage = Stage(lines("a"))
    await stage.batches.add(stage.batch)
    stage.gateway.gate = asyncio.Event()
    run = asyncio.ensure_future(BatchRun("batch_1", "w", stage.tools).take_turn())
    await stage.clock.advance(0.5)
    stage.results.fault = Transient("the disk is full")
    stage.gateway.gate.set()
    with pytest.raises(Transient, match="disk is full"):
        await stage.clock.run(run)
    stage.results.fault = None
    assert (await stage.turn("w2")).counts.completed == 1


async def test_a_record_that_others_change_all_the_time_is_tried_again_later(monkeypatch):
    stage = Stage(lines("a"))
    await stage.batches.add(stage.batch)

    async def never(_batch: Batch) -> Batch | None:
        return None

    monkeypatch.setattr(stage.batches, "replace", never)
    with pytest.raises(Transient, match="by others"):
        await BatchRun("batch_1", "w", stage.tools).take_turn()


async def test_a_batch_that_was_cancelled_before_its_file_was_read_ends_at_once():
    stage = Stage(lines("a"))
    stage.batch = replace(stage.batch, status=BatchStatus.CANCELLING)
    batch = await stage.turn()
    assert (batch.status, batch.output_file_id) == (BatchStatus.CANCELLED, None)


async def test_a_batch_that_is_cancelled_while_its_file_is_read_is_not_begun(monkeypatch):
    stage = Stage(lines("a"))
    await stage.batches.add(stage.batch)
    read = read_lines

    def cancelling(source, endpoint, models):
        stage.batches._batches["batch_1"] = replace(
            stage.batch, status=BatchStatus.CANCELLING, revision=1
        )
        return read(source, endpoint, models)

    monkeypatch.setattr(batch_run, "read_lines", cancelling)
    assert (await stage.turn()).status is BatchStatus.CANCELLED
    assert stage.gateway.calls == []
