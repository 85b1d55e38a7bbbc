"""The number that others scale by: fresh, or not given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import aiohttp
import pytest

from contracts.reasons import Reason
from contracts.scaling import Scaling
from tests.control_server import RunningControl

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def control() -> Iterator[RunningControl]:
    control = RunningControl(seeded=False).start()
    yield control
    control.stop()


def put(control: RunningControl, **changes) -> Scaling:
    scaling = Scaling(
        target="chat",
        at_s=control.lively.clock.now_s(),
        replicas=3,
        reason=Reason.FORECAST_NEED,
        evidence={"in_flight": 2.0},
    )
    scaling = replace(scaling, **changes)
    control.do(control.scaling.put_scaling(scaling))
    return scaling


async def test_a_target_has_its_number_and_why(control: RunningControl):
    put(control)
    status, body = await control.got("/v1/autoscale/chat")
    assert status == 200
    assert (body["replicas"], body["reason"], body["stale"]) == (3, "forecast_need", False)
    assert body["evidence"] == {"in_flight": 2.0}
    assert "will be needed" in body["explanation"]


async def test_an_old_number_is_listed_as_such_and_given_to_no_scaler(control: RunningControl):
    put(control, target="old", at_s=control.lively.clock.now_s() - 61)
    status, body = await control.got("/v1/autoscale/old")
    assert status == 503
    assert "said nothing for a minute" in body["error"]["message"]
    _, listed = await control.got("/v1/autoscale")
    assert {one["id"]: one["stale"] for one in listed["data"]}["old"] is True


async def test_an_unknown_target_is_told_the_like_of_it(control: RunningControl):
    put(control)
    status, body = await control.got("/v1/autoscale/chatt")
    assert status == 404
    assert "is chat meant?" in body["error"]["message"]
    status, _ = await control.got("/v1/autoscale/workers-nothing")
    assert status == 404


async def test_worker_processes_follow_the_jobs_that_wait(control: RunningControl):
    jobs = control.room.ports.jobs
    assert jobs is not None
    jobs.enqueue("background", "inference", {}, "scaled-0")
    status, body = await control.got("/v1/autoscale/workers-background")
    assert (status, body["replicas"]) == (200, 1)
    for number in range(1, 9):
        jobs.enqueue("background", "inference", {}, f"scaled-{number}")
    _, body = await control.got("/v1/autoscale/workers-background")
    assert body["replicas"] == 4
    assert body["evidence"] == {"waiting": 9, "running": 0}


async def test_the_metrics_page_has_the_number_for_autoscalers_that_read_one(
    control: RunningControl,
):
    put(control, target="paged", replicas=4, needed=6, most=4, current=2)
    put(control, target="paged-old", at_s=control.lively.clock.now_s() - 61)
    control.do(control.room.followers.read_world())
    async with aiohttp.ClientSession() as session, session.get(control.url + "/metrics") as answer:
        page = await answer.text()
    for name, value in (("desired", 4), ("current", 2), ("needed", 6), ("max", 4)):
        assert f'headstart_autoscale_{name}_replicas{{target="paged"}} {value}.0' in page
    assert "paged-old" not in page
