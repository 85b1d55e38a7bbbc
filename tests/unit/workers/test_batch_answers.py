"""The lines of a batch: which is sent when, and what stands in its files for each."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace
from typing import BinaryIO

import pytest

from contracts import batch_lifecycle as lifecycle
from contracts.batches import BatchStatus, FilePurpose, LineCounts
from contracts.errors import Transient
from contracts.ports import Exchange
from tests.batch_stage import EMBED, START_S, Stage, as_line, limit, lines, said, world
from workers.batches.run import BatchRun


async def test_every_line_has_its_answer_in_the_order_of_the_file():
    stage = Stage(lines("b", "a", "b", "a"))
    batch = await stage.turn()
    assert batch.status is BatchStatus.COMPLETED
    assert batch.counts == LineCounts(total=4, completed=4)
    assert batch.error_file_id is None
    out = stage.read(batch.output_file_id)
    assert [line["custom_id"] for line in out] == ["c0", "c1", "c2", "c3"]
    assert [line["response"]["body"]["said"] for line in out] == ["b", "a", "b", "a"]
    file = stage.files.get(batch.output_file_id or "")
    assert file is not None
    assert (file.purpose, file.filename) == (FilePurpose.BATCH_OUTPUT, "batch_1_output.jsonl")
    headers = stage.gateway.calls[0][2]
    assert headers["X-Headstart-Class"] == "batch"
    assert headers["X-Headstart-Preempt"] == "anytime"
    assert stage.sent() == ["a", "a", "b", "b"], "model by model"
    assert list(stage.results.records("batch_1")) == [], "its segments are gone"


async def test_a_bad_file_fails_as_a_whole_and_nothing_is_sent():
    stage = Stage(as_line({"custom_id": "a"}) + b"no json\n")
    batch = await stage.turn()
    assert (batch.status, batch.faults[0].line) == (BatchStatus.FAILED, 2)
    assert stage.gateway.calls == []


async def test_an_input_file_that_is_gone_fails_the_batch():
    stage = Stage(lines("a"))
    stage.files.delete("file-in")
    assert (await stage.turn()).faults[0].code == "input_file_deleted"


@pytest.mark.parametrize("status", [BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING])
async def test_an_input_file_that_is_gone_under_way_fails_it_too(status: BatchStatus):
    stage = Stage(lines("a"))
    stage.batch = replace(stage.batch, status=status, counts=LineCounts(total=1))
    stage.files.delete("file-in")
    batch = await stage.turn()
    assert (batch.status, batch.faults[0].code) == (BatchStatus.FAILED, "input_file_deleted")
    assert stage.gateway.calls == []


async def test_a_batch_whose_file_is_gone_and_that_is_cancelled_is_cancelled():
    stage = Stage(lines("a"))
    stage.batch = replace(stage.batch, status=BatchStatus.IN_PROGRESS)
    stage.files.delete("file-in")
    read = stage.files.open

    def cancelled_meanwhile(file_id: str) -> BinaryIO:
        stage.batches._batches["batch_1"] = lifecycle.cancelled_by_caller(
            stage.batches._batches["batch_1"], START_S
        )
        return read(file_id)

    stage.files.open = cancelled_meanwhile  # type: ignore[method-assign] # a moment of a race
    assert (await stage.turn()).status is BatchStatus.CANCELLING
    assert (await stage.turn()).status is BatchStatus.CANCELLED


async def test_answers_that_are_errors_stand_in_the_error_file():
    stage = Stage(lines("a", "b"))
    stage.gateway.script = lambda _path, body: said("bad", 400) if b'"b"' in body else said("good")
    batch = await stage.turn()
    assert batch.counts == LineCounts(total=2, completed=1, failed=1)
    (error,) = stage.read(batch.error_file_id)
    assert (error["custom_id"], error["response"]["status_code"]) == ("c1", 400)
    assert [line["custom_id"] for line in stage.read(batch.output_file_id)] == ["c0"]


async def test_refusals_are_waited_out_and_a_server_that_fails_is_given_up_in_the_end():
    stage = Stage(lines("a", "b"))
    tries = Counter[str]()

    def script(_path: str, body: bytes) -> Exchange:
        model = json.loads(body)["model"]
        tries[model] += 1
        if model == "a" and tries["a"] <= 3:
            return said("busy", 503, error_type="queue_timeout", retry_after_s=30.0)
        return said("a") if model == "a" else said("broken", 500)

    stage.gateway.script = script
    batch = await stage.turn()
    assert batch.counts == LineCounts(total=2, completed=1, failed=1)
    assert tries == {"a": 4, "b": 4}
    assert stage.clock.monotonic_s() >= 90.0


async def test_a_gateway_that_is_away_costs_no_line():
    stage = Stage(lines("a", "b"))
    stage.gateway.fault = Transient("away")
    await stage.batches.add(stage.batch)
    run = asyncio.ensure_future(BatchRun("batch_1", "w", stage.tools).take_turn())
    await stage.clock.advance(60.0)
    assert stage.gateway.calls
    stage.gateway.fault = None
    batch = await stage.clock.run(run)
    assert batch is not None
    assert batch.counts == LineCounts(total=2, completed=2)


async def test_one_line_runs_at_a_time_when_nobody_says_more():
    stage = Stage(lines("a", "a", "a"))
    stage.gateway.gate = asyncio.Event()
    await stage.batches.add(stage.batch)
    run = asyncio.ensure_future(BatchRun("batch_1", "w", stage.tools).take_turn())
    await stage.clock.advance(5.0)
    assert len(stage.gateway.calls) == 1
    await limit(stage, 2)
    await stage.snapshots.put_world(world(stage.clock, {"a"}))
    await stage.clock.advance(2.0)
    assert len(stage.gateway.calls) == 2
    stage.gateway.gate.set()
    await stage.clock.run(run)


async def test_resident_models_go_first_and_cold_ones_only_with_leave():
    stage = Stage(lines("b", "a", "b", "a", "c"))
    await limit(stage, 1)
    await stage.batches.add(stage.batch)
    run = asyncio.ensure_future(BatchRun("batch_1", "w", stage.tools).take_turn())
    for _ in range(30):
        await stage.snapshots.put_world(world(stage.clock, {"a"}))
        await stage.clock.advance(2.0)
    assert stage.sent() == ["a", "a"]
    await limit(stage, 1, "b", "c")
    for _ in range(5):
        await stage.snapshots.put_world(world(stage.clock, {"a"}))
        await stage.clock.advance(2.0)
    assert stage.sent() == ["a", "a", "b", "b", "c"]
    assert (await stage.clock.run(run)).status is BatchStatus.COMPLETED  # type: ignore[union-attr]


async def test_while_realtime_waits_nothing_is_begun():
    stage = Stage(lines("a"))
    await limit(stage, 4)
    await stage.batches.add(stage.batch)
    run = asyncio.ensure_future(BatchRun("batch_1", "w", stage.tools).take_turn())
    for _ in range(10):
        await stage.snapshots.put_world(world(stage.clock, {"a"}, realtime=1))
        await stage.clock.advance(2.0)
    assert stage.gateway.calls == []
    await stage.snapshots.put_world(world(stage.clock, {"a"}))
    await stage.clock.advance(3.0)
    assert len(stage.gateway.calls) == 1
    await run


async def test_a_line_that_gave_way_three_times_does_so_no_more():
    stage = Stage(lines("a"))
    answers = iter([said("", 503, error_type="preempted", retry_after_s=1.0)] * 3 + [said("a")])
    stage.gateway.script = lambda _path, _body: next(answers)
    assert (await stage.turn()).counts.completed == 1
    preemptible = ["X-Headstart-Preempt" in headers for _, _, headers in stage.gateway.calls]
    assert preemptible == [True, True, True, False]


async def test_embeddings_go_together_and_one_bad_line_spoils_only_itself():
    stage = Stage(
        [
            {"custom_id": f"c{n}", "url": EMBED, "body": {"model": "e", "input": text}}
            for n, text in enumerate(["one", "two", "BAD", "four"])
        ],
        EMBED,
    )

    def script(_path: str, body: bytes) -> Exchange:
        texts = json.loads(body)["input"]
        texts = [texts] if isinstance(texts, str) else texts
        if "BAD" in texts:
            return said("no", 400)
        data = [{"index": n, "embedding": [len(text)]} for n, text in enumerate(texts)]
        return Exchange(status=200, body=json.dumps({"data": data}).encode())

    stage.gateway.script = script
    batch = await stage.turn()
    assert batch.counts == LineCounts(total=4, completed=3, failed=1)
    lengths = [
        line["response"]["body"]["data"][0]["embedding"][0]
        for line in stage.read(batch.output_file_id)
    ]
    assert lengths == [3, 3, 4]
    assert len(stage.gateway.calls) == 5, "all at once, then each alone"


async def test_good_embeddings_are_one_request():
    stage = Stage(
        [
            {"custom_id": f"c{n}", "url": EMBED, "body": {"model": "e", "input": str(n)}}
            for n in range(40)
        ],
        EMBED,
    )

    def script(_path: str, body: bytes) -> Exchange:
        data = [{"index": n, "embedding": []} for n in range(len(json.loads(body)["input"]))]
        return Exchange(status=200, body=json.dumps({"data": data}).encode())

    stage.gateway.script = script
    assert (await stage.turn()).counts.completed == 40
    assert len(stage.gateway.calls) == 2
