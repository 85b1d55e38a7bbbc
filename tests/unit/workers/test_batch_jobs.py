"""The jobs of batches: what one does, and the sweep that queues them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.batches import Batch, BatchStatus
from contracts.errors import Invalid
from contracts.jobs import JobState
from tests.batch_stage import START_S, Stage, lines
from workers.batches.sweep import Sweep
from workers.handlers import batch as handler
from workers.tools import JobContext

# The job


def _context() -> JobContext:
    return JobContext(job_id="batch_1-0", queue="batch", waited_s=0.0)


async def test_the_job_works_on_the_batch_that_it_names():
    stage = Stage(lines("a"))
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
