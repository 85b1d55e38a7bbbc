"""A batch from its file to its end, on stores in memory and virtual time."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, BinaryIO, TypeAlias

import pytest

from contracts import batch_lifecycle as lifecycle
from contracts.batches import Batch, BatchStatus, FilePurpose, LineCounts, StoredFile
from contracts.errors import Invalid, Transient
from contracts.events import PriorityClass
from contracts.ids import ModelId, NodeId
from contracts.jobs import JobState
from contracts.limits import ClassLimits
from contracts.ports import Exchange
from contracts.reasons import Reason
from contracts.world import ModelStatus, QueueStatus, Residency, WorldSnapshot
from simulator.clock import VirtualClock
from simulator.memory_batches import MemoryBatchStore, MemoryFileStore, MemoryResultLog
from simulator.memory_jobs import MemoryInferenceGateway, MemoryJobQueue, MemoryJobResults
from simulator.memory_ports import MemoryForecastStore, MemorySnapshotStore
from workers.batches import run as batch_run
from workers.batches.lines import read_lines
from workers.batches.run import TURN_S, BatchRun
from workers.batches.sweep import Sweep
from workers.handlers import batch as handler
from workers.queues import QUEUES
from workers.retry import Turn
from workers.tools import JobContext, Tools

CHAT, EMBED = "/v1/chat/completions", "/v1/embeddings"
START_S = 1_000_000.0
Line: TypeAlias = dict[str, Any]


async def _here(function, *args):
    return function(*args)


class Stage:
    """One batch, and everything around it."""

    def __init__(self, lines: list[Line] | bytes, endpoint: str = CHAT) -> None:
        self.clock = VirtualClock(START_S)
        self.gateway = MemoryInferenceGateway()
        self.gateway.script = lambda _path, body: _said(json.loads(body)["model"])
        self.files, self.results = MemoryFileStore(), MemoryResultLog()
        self.batches, self.snapshots = MemoryBatchStore(), MemorySnapshotStore()
        self.jobs = MemoryJobQueue(QUEUES)
        self.batch = Batch(
            batch_id="batch_1",
            endpoint=endpoint,
            input_file_id="file-in",
            completion_window="24h",
            status=BatchStatus.VALIDATING,
            created_at_s=START_S,
            expires_at_s=START_S + 24 * 3600.0,
        )
        data = lines if isinstance(lines, bytes) else b"".join(_line(one) for one in lines)
        self.files.add(
            StoredFile(
                file_id="file-in",
                filename="in.jsonl",
                purpose=FilePurpose.BATCH,
                size_bytes=0,
                created_at_s=START_S,
            ),
            io.BytesIO(data),
        )
        self.tools = Tools(
            clock=self.clock,
            results=MemoryJobResults(),
            jobs=self.jobs,
            gateway=self.gateway,
            snapshots=self.snapshots,
            forecasts=MemoryForecastStore(),
            logs={},
            batches=self.batches,
            files=self.files,
            line_results=self.results,
            aside=_here,
        )

    async def turn(self, owner: str = "w1", *, limit_s: float = 86_400.0) -> Batch:
        if await self.batches.get("batch_1") is None:
            await self.batches.add(self.batch)
        run = BatchRun("batch_1", owner, self.tools)
        batch = await self.clock.run(run.take_turn(), limit_s=limit_s)
        assert batch is not None
        return batch

    async def now(self) -> Batch:
        batch = await self.batches.get("batch_1")
        assert batch is not None
        return batch

    def read(self, file_id: str | None) -> list[Line]:
        assert file_id is not None
        with self.files.open(file_id) as file:
            return [json.loads(line) for line in file.read().splitlines()]

    def sent(self) -> list[str]:
        return [json.loads(body)["model"] for _, body, _ in self.gateway.calls]


def _line(line: Line) -> bytes:
    whole = {"method": "POST", "url": CHAT, "body": {"model": "m"}} | line
    return json.dumps(whole).encode() + b"\n"


def _lines(*models: str, url: str = CHAT, **body: object) -> list[Line]:
    return [
        {"custom_id": f"c{n}", "url": url, "body": {"model": model, **body}}
        for n, model in enumerate(models)
    ]


def _said(text: str, status: int = 200, **more) -> Exchange:
    return Exchange(status=status, body=json.dumps({"said": text}).encode(), **more)


def _world(clock: VirtualClock, hot: set[str], *, realtime: int = 0) -> WorldSnapshot:
    return WorldSnapshot(
        taken_at_s=clock.now_s(),
        models={
            ModelId(name): ModelStatus(
                model=ModelId(name),
                node=NodeId("n"),
                residency=Residency.HOT if name in hot else Residency.COLD,
            )
            for name in ("a", "b", "c")
        },
        queues=(QueueStatus(priority=PriorityClass.REALTIME, waiting=realtime),),
    )


async def _limit(stage: Stage, slots: int, *loadable: str) -> None:
    await stage.snapshots.put_limits(
        ClassLimits(
            priority=PriorityClass.BATCH,
            slots=slots,
            loadable=tuple(ModelId(name) for name in loadable),
            valid_until_s=START_S + 1e6,
            reason=Reason.DEMAND,
        )
    )


async def test_every_line_has_its_answer_in_the_order_of_the_file():
    stage = Stage(_lines("b", "a", "b", "a"))
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
    stage = Stage(_line({"custom_id": "a"}) + b"no json\n")
    batch = await stage.turn()
    assert (batch.status, batch.faults[0].line) == (BatchStatus.FAILED, 2)
    assert stage.gateway.calls == []


async def test_an_input_file_that_is_gone_fails_the_batch():
    stage = Stage(_lines("a"))
    stage.files.delete("file-in")
    assert (await stage.turn()).faults[0].code == "input_file_deleted"


@pytest.mark.parametrize("status", [BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING])
async def test_an_input_file_that_is_gone_under_way_fails_it_too(status: BatchStatus):
    stage = Stage(_lines("a"))
    stage.batch = replace(stage.batch, status=status, counts=LineCounts(total=1))
    stage.files.delete("file-in")
    batch = await stage.turn()
    assert (batch.status, batch.faults[0].code) == (BatchStatus.FAILED, "input_file_deleted")
    assert stage.gateway.calls == []


async def test_a_batch_whose_file_is_gone_and_that_is_cancelled_is_cancelled():
    stage = Stage(_lines("a"))
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
    stage = Stage(_lines("a", "b"))
    stage.gateway.script = lambda _path, body: (
        _said("bad", 400) if b'"b"' in body else _said("good")
    )
    batch = await stage.turn()
    assert batch.counts == LineCounts(total=2, completed=1, failed=1)
    (error,) = stage.read(batch.error_file_id)
    assert (error["custom_id"], error["response"]["status_code"]) == ("c1", 400)
    assert [line["custom_id"] for line in stage.read(batch.output_file_id)] == ["c0"]


async def test_refusals_are_waited_out_and_a_server_that_fails_is_given_up_in_the_end():
    stage = Stage(_lines("a", "b"))
    tries = Counter[str]()

    def script(_path: str, body: bytes) -> Exchange:
        model = json.loads(body)["model"]
        tries[model] += 1
        if model == "a" and tries["a"] <= 3:
            return _said("busy", 503, error_type="queue_timeout", retry_after_s=30.0)
        return _said("a") if model == "a" else _said("broken", 500)

    stage.gateway.script = script
    batch = await stage.turn()
    assert batch.counts == LineCounts(total=2, completed=1, failed=1)
    assert tries == {"a": 4, "b": 4}
    assert stage.clock.monotonic_s() >= 90.0


async def test_a_gateway_that_is_away_costs_no_line():
    stage = Stage(_lines("a", "b"))
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
    stage = Stage(_lines("a", "a", "a"))
    stage.gateway.gate = asyncio.Event()
    await stage.batches.add(stage.batch)
    run = asyncio.ensure_future(BatchRun("batch_1", "w", stage.tools).take_turn())
    await stage.clock.advance(5.0)
    assert len(stage.gateway.calls) == 1
    await _limit(stage, 2)
    await stage.snapshots.put_world(_world(stage.clock, {"a"}))
    await stage.clock.advance(2.0)
    assert len(stage.gateway.calls) == 2
    stage.gateway.gate.set()
    await stage.clock.run(run)


async def test_resident_models_go_first_and_cold_ones_only_with_leave():
    stage = Stage(_lines("b", "a", "b", "a", "c"))
    await _limit(stage, 1)
    await stage.batches.add(stage.batch)
    run = asyncio.ensure_future(BatchRun("batch_1", "w", stage.tools).take_turn())
    for _ in range(30):
        await stage.snapshots.put_world(_world(stage.clock, {"a"}))
        await stage.clock.advance(2.0)
    assert stage.sent() == ["a", "a"]
    await _limit(stage, 1, "b", "c")
    for _ in range(5):
        await stage.snapshots.put_world(_world(stage.clock, {"a"}))
        await stage.clock.advance(2.0)
    assert stage.sent() == ["a", "a", "b", "b", "c"]
    assert (await stage.clock.run(run)).status is BatchStatus.COMPLETED  # type: ignore[union-attr]


async def test_while_realtime_waits_nothing_is_begun():
    stage = Stage(_lines("a"))
    await _limit(stage, 4)
    await stage.batches.add(stage.batch)
    run = asyncio.ensure_future(BatchRun("batch_1", "w", stage.tools).take_turn())
    for _ in range(10):
        await stage.snapshots.put_world(_world(stage.clock, {"a"}, realtime=1))
        await stage.clock.advance(2.0)
    assert stage.gateway.calls == []
    await stage.snapshots.put_world(_world(stage.clock, {"a"}))
    await stage.clock.advance(3.0)
    assert len(stage.gateway.calls) == 1
    await run


async def test_a_line_that_gave_way_three_times_does_so_no_more():
    stage = Stage(_lines("a"))
    answers = iter([_said("", 503, error_type="preempted", retry_after_s=1.0)] * 3 + [_said("a")])
    stage.gateway.script = lambda _path, _body: next(answers)
    assert (await stage.turn()).counts.completed == 1
    preemptible = ["X-Headstart-Preempt" in headers for _, _, headers in stage.gateway.calls]
    assert preemptible == [True, True, True, False]


async def test_a_cancelled_batch_keeps_what_is_done():
    stage = Stage(_lines("a", "a", "a"))
    stage.gateway.gate = asyncio.Event()
    stage.gateway.gate.set()
    done = 0

    def script(_path: str, _body: bytes) -> Exchange:
        nonlocal done
        done += 1
        assert stage.gateway.gate is not None
        stage.gateway.gate.clear()
        return _said("a")

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
    stage = Stage(_lines("a", "b", "c"))
    stage.batch = replace(stage.batch, expires_at_s=START_S + 100.0)
    stage.gateway.script = lambda _path, body: (
        _said("a") if b'"a"' in body else _said("busy", 429, retry_after_s=20.0)
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
    stage = Stage(_lines(*"aaaa"))
    sent = 0

    def script(_path: str, _body: bytes) -> Exchange:
        nonlocal sent
        sent += 1
        if sent == 3:
            stage.gateway.gate = asyncio.Event()
        return _said("a")

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
    stage = Stage(_lines("a", "a"))
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
            return _said("no", 400)
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


async def test_the_record_tells_how_far_it_is_and_how_fast(monkeypatch):
    stage = Stage(_lines(*"a" * 100))
    answered = 0

    async def exchange(_path: str, _body: bytes, _headers: Mapping[str, str]) -> Exchange:
        nonlocal answered
        await stage.clock.sleep(1.0)
        answered += 1
        return _said("a")

    monkeypatch.setattr(stage.gateway, "exchange", exchange)
    await stage.batches.add(stage.batch)
    run = asyncio.ensure_future(BatchRun("batch_1", "w", stage.tools).take_turn())
    await stage.clock.advance(50.0)
    batch = await stage.now()
    assert 45 <= batch.counts.completed <= answered <= 50
    assert batch.lines_per_s == pytest.approx(1.0, rel=0.1)
    assert (await stage.clock.run(run)).lines_per_s is None  # type: ignore[union-attr]


async def test_after_its_turn_another_batch_goes_first_and_alone_it_goes_on():
    stage = Stage(_lines("a"))
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
    stage = Stage(_lines("a"))
    await stage.batches.add(stage.batch)
    assert await stage.batches.take("batch_1", "other", hold_s=30.0)
    with pytest.raises(Turn, match="another worker"):
        await BatchRun("batch_1", "w", stage.tools).take_turn()


async def test_one_whose_hold_was_lost_stops():
    stage = Stage(_lines("a"))
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
    stage = Stage(_lines("a", "a"))
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
    stage = Stage(_lines("a"))
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
    stage = Stage(_lines("a"))
    await stage.batches.add(stage.batch)

    async def never(_batch: Batch) -> Batch | None:
        return None

    monkeypatch.setattr(stage.batches, "replace", never)
    with pytest.raises(Transient, match="by others"):
        await BatchRun("batch_1", "w", stage.tools).take_turn()


async def test_a_batch_that_was_cancelled_before_its_file_was_read_ends_at_once():
    stage = Stage(_lines("a"))
    stage.batch = replace(stage.batch, status=BatchStatus.CANCELLING)
    batch = await stage.turn()
    assert (batch.status, batch.output_file_id) == (BatchStatus.CANCELLED, None)


async def test_a_batch_that_is_cancelled_while_its_file_is_read_is_not_begun(monkeypatch):
    stage = Stage(_lines("a"))
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


# The job


def _context() -> JobContext:
    return JobContext(job_id="batch_1-0", queue="batch", waited_s=0.0)


async def test_the_job_works_on_the_batch_that_it_names():
    stage = Stage(_lines("a"))
    await stage.batches.add(stage.batch)
    job = handler.run({"batch_id": "batch_1"}, _context(), stage.tools)
    assert await stage.clock.run(job) == {"batch_id": "batch_1", "status": "completed"}
    again = await handler.run({"batch_id": "batch_1"}, _context(), stage.tools)
    assert again["status"] == "completed", "what has ended stays so"
    unknown = await handler.run({"batch_id": "batch_x"}, _context(), stage.tools)
    assert unknown == {"batch_id": "batch_x", "status": None}


@pytest.mark.parametrize("payload", [{}, {"batch_id": 3}, {"batch_id": "x", "more": 1}])
async def test_a_job_that_names_no_batch_is_refused(payload):
    with pytest.raises(Invalid, match="batch_id"):
        await handler.run(payload, _context(), Stage([]).tools)


async def test_a_worker_without_stores_says_so():
    with pytest.raises(Invalid, match="no store"):
        await handler.run({"batch_id": "x"}, _context(), replace(Stage([]).tools, batches=None))


# Sweeping


async def test_every_batch_that_has_not_ended_gets_a_job_once():
    stage = Stage([])
    older = replace(stage.batch, batch_id="batch_0", created_at_s=START_S - 1.0)
    for batch in (stage.batch, older):
        await stage.batches.add(batch)
    await stage.batches.add(replace(stage.batch, batch_id="batch_9", status=BatchStatus.COMPLETED))
    sweep = Sweep(stage.batches, stage.jobs)
    assert await sweep.queue_due() == 2
    assert await sweep.queue_due() == 0
    assert stage.jobs.job_ids("batch") == ["batch_0-0", "batch_1-0"]


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.FINISHED])
async def test_a_batch_whose_job_ended_without_it_gets_a_new_one(state):
    stage = Stage([])
    await stage.batches.add(stage.batch)
    sweep = Sweep(stage.batches, stage.jobs)
    await sweep.queue_due()
    first = (await stage.now()).job_id
    stage.jobs.move(first, state)
    assert await sweep.queue_due() == 1
    assert (await stage.now()).job_id != first


async def test_a_job_that_runs_counts_while_somebody_has_the_batch():
    stage = Stage([])
    await stage.batches.add(stage.batch)
    sweep = Sweep(stage.batches, stage.jobs)
    await sweep.queue_due()
    stage.jobs.move((await stage.now()).job_id, JobState.STARTED)
    assert await stage.batches.take("batch_1", "w", hold_s=30.0)
    assert await sweep.queue_due() == 0
    await stage.batches.let_go("batch_1", "w")
    assert await sweep.queue_due() == 1, "its process died"


async def test_a_job_that_cannot_be_read_counts_as_lost(monkeypatch):
    stage = Stage([])
    await stage.batches.add(replace(stage.batch, job_id="x"))

    def unreadable(_job_id: str) -> None:
        raise Invalid("cannot be read")

    monkeypatch.setattr(stage.jobs, "status", unreadable)
    assert await Sweep(stage.batches, stage.jobs).queue_due() == 1


async def test_two_sweeps_at_once_queue_one_job(monkeypatch):
    stage = Stage([])
    await stage.batches.add(stage.batch)

    async def lost(_batch: Batch) -> Batch | None:
        return None

    monkeypatch.setattr(stage.batches, "replace", lost)
    assert await Sweep(stage.batches, stage.jobs).queue_due() == 0
