"""``headstart jobs`` against a control API that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from cli.__main__ import build_app
from contracts.batches import Batch, BatchStatus, LineCounts
from contracts.errors import HeadstartError, Invalid, Permanent, Transient
from contracts.jobs import JobState
from simulator.memory_jobs import MemoryJobQueue
from tests.control_server import RunningControl

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def control() -> Iterator[RunningControl]:
    control = RunningControl(seeded=False).start()
    jobs = control.room.ports.jobs
    assert isinstance(jobs, MemoryJobQueue)
    for name in ("job-waits", "job-runs", "job-failed"):
        jobs.enqueue("background", "inference", {}, name)
    jobs.move("job-runs", JobState.STARTED)
    jobs.move("job-failed", JobState.FAILED, error="404: no such model")
    batch = Batch(
        batch_id="batch_1",
        endpoint="/v1/embeddings",
        input_file_id="file-1",
        completion_window="24h",
        status=BatchStatus.IN_PROGRESS,
        created_at_s=0.0,
        expires_at_s=1.0,
        counts=LineCounts(total=10, completed=3, failed=1),
        lines_per_s=2.0,
    )
    control.do(control.batches.add(batch))
    yield control
    control.stop()


def _run(control: RunningControl, *arguments: str) -> Result:
    words = ["jobs", *arguments, "--url", control.url]
    return CliRunner().invoke(build_app(words), words, env={"COLUMNS": "200"})


def _error(result: Result) -> HeadstartError:
    assert isinstance(result.exception, HeadstartError), result.output
    return result.exception


def test_the_list_shows_queues_batches_and_dead_letters(control: RunningControl):
    said = _run(control, "list").output
    assert "background" in said
    assert "404: no such model" in said
    assert "3 + 1 failed of 10" in said
    assert "3 s" in said


def test_the_list_shows_when_maintenance_is_due(control: RunningControl):
    said = _run(control, "list").output
    for chore in ("retention", "backtest", "retrain", "profiles"):
        assert chore in said
    told = json.loads(_run(control, "list", "--json").output.splitlines()[-1])
    assert {one["id"]: one["cron"] for one in told["maintenance"]}["backtest"] == "37 2 * * *"
    assert all(one["next_at_s"] > 0 for one in told["maintenance"])


def test_a_chore_is_done_by_hand_and_once_a_minute(control: RunningControl):
    first, second = (_run(control, "run", "profiles").output for _ in range(2))
    assert "profiles is queued" in first
    assert "is queued" in second
    assert "no chore is called" in str(_error(_run(control, "run", "dishes")))


def test_as_json_the_list_is_one_object(control: RunningControl):
    told = json.loads(_run(control, "list", "--json").output.splitlines()[-1])
    assert [one["id"] for one in told["failed"]] == ["job-failed"]
    assert [one["id"] for one in told["batches"]] == ["batch_1"]


def test_one_job_is_shown_whole(control: RunningControl):
    said = _run(control, "show", "job-failed").output
    assert "404: no such model" in said
    assert json.loads(_run(control, "show", "job-runs", "--json").output)["state"] == "started"


def test_what_waits_is_cancelled_and_what_runs_broken_off(control: RunningControl):
    assert "is cancelled" in _run(control, "cancel", "job-waits").output
    assert "being broken off" in _run(control, "cancel", "job-runs").output
    results = control.room.ports.results
    assert results is not None
    assert control.do(results.is_cancelled("job-runs"))
    again = _error(_run(control, "cancel", "job-waits"))
    assert isinstance(again, Permanent)
    assert "nothing to cancel" in str(again)


def test_only_a_failed_job_is_tried_again(control: RunningControl):
    jobs = control.room.ports.jobs
    assert jobs is not None
    assert jobs.enqueue("background", "inference", {}, "job-again")
    assert isinstance(jobs, MemoryJobQueue)
    jobs.move("job-again", JobState.FAILED, error="no")
    assert "queued again" in _run(control, "retry", "job-again").output
    assert "only one that has failed" in str(_error(_run(control, "retry", "job-again")))


def test_unknown_jobs_and_queues_are_told(control: RunningControl):
    assert "no job has this id" in str(_error(_run(control, "show", "job-x/../y")))
    assert isinstance(_error(_run(control, "list", "--queue", "express")), Invalid)


def test_a_control_api_that_is_away_is_told_with_what_to_do():
    words = ["jobs", "list", "--url", "http://127.0.0.1:9"]
    error = _error(CliRunner().invoke(build_app(words), words))
    assert isinstance(error, Transient)
    assert "headstart up" in str(error)
    words = ["jobs", "list", "--url", "file:///etc/passwd"]
    assert isinstance(_error(CliRunner().invoke(build_app(words), words)), Invalid)
