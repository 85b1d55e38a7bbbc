"""What runs beside the app goes on after a bug in it, and the bug is told."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from adapters.clock import ScaledClock
from api.gateway.service import _kept_running


async def test_a_job_that_fails_is_told_and_begins_again():
    begun = 0
    goes_on = asyncio.Event()

    async def job() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise RuntimeError("a bug")
        goes_on.set()
        await asyncio.Event().wait()

    with capture_logs() as said:
        task = asyncio.create_task(_kept_running(job, _Quick()))
        await goes_on.wait()
    assert begun == 3
    assert [line["event"] for line in said] == ["gateway_job_failed"] * 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_job_that_is_done_is_done():
    begun = 0

    async def job() -> None:
        nonlocal begun
        begun += 1

    await _kept_running(job, _Quick())
    assert begun == 1


class _Quick(ScaledClock):
    """Waits for nothing."""

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(0)
