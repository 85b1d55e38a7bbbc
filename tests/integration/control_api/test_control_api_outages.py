"""What the control API says while Redis, the controller or a queue is away."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.errors import Transient
from tests.control_server import RunningControl
from tests.integration.control_api.control_caller import COLD, HOT, KINDS, Caller

pytestmark = pytest.mark.integration


async def test_while_redis_is_away_the_last_world_is_served_as_stale(
    control: RunningControl, session
):
    ask = Caller(session, control.url)
    lively = control.lively
    fault = Transient("ConnectionError: redis.internal:6379 refused")
    for port in (lively.snapshots, lively.settings, lively.decisions, lively.events,
                 lively.forecasts, lively.mailbox, lively.jobs):  # fmt: skip
        port.fault = fault
    control.do(_until(lambda: control.room.board.store_fault is not None))
    assert (await ask.get("/v1/models"))["stale"]
    assert (await ask.get(f"/v1/models/{HOT}"))["stale"]
    assert (await ask.get("/v1/forecasts"))["stale"]
    assert (await ask.get("/v1/nodes"))["stale"]
    summary = await ask.get("/v1/summary")
    assert (summary["stale"], summary["mode"]) == (True, "active")
    for method, path in (
        ("GET", "/v1/decisions"),
        ("GET", "/v1/jobs"),
        ("PUT", "/v1/mode"),
        ("POST", f"/v1/models/{HOT}/pin"),
        ("POST", f"/v1/models/{COLD}/load"),
    ):
        body = {"mode": "active"} if method == "PUT" else None
        status, answer, response = await ask(method, path, body)
        assert status == 503, path
        assert "Redis" in answer["error"]["message"]
        assert "redis.internal" not in answer["error"]["message"]
        assert int(response.headers["Retry-After"]) >= 1
    status, answer, _ = await ask("GET", "/readyz")
    assert (status, answer["ready"]) == (503, False)
    assert "redis: it does not answer" in answer["error"]["message"]
    assert (await ask("GET", "/healthz"))[0] == 200
    for port in (lively.snapshots, lively.settings, lively.decisions, lively.events,
                 lively.forecasts, lively.mailbox, lively.jobs):  # fmt: skip
        port.fault = None
    control.do(_until(lambda: not control.room.followers.faults))
    assert not (await ask.get("/v1/models"))["stale"]
    assert (await ask("GET", "/readyz"))[0] == 200


async def test_before_anything_was_published(session):
    control = RunningControl(seeded=False).start()
    try:
        ask = Caller(session, control.url)
        for path in ("/v1/models", "/v1/nodes", "/v1/queues", "/v1/mode"):
            status, answer, _ = await ask("GET", path)
            assert (status, answer["error"]["code"]) == (503, "no_snapshot")
        for path in ("/v1/forecasts", "/v1/slas", "/v1/comparisons", "/v1/decisions"):
            assert (await ask.get(path))["data"] == []
        # A target may be set before any model is known.
        assert (await ask("PUT", "/v1/slas/soon-there", {"target_s": 1}))[0] == 200
        status, answer, _ = await ask("GET", "/readyz")
        assert "controller: no snapshot was ever seen" in answer["error"]["message"]
        assert "predictor: no forecast was ever seen" in answer["error"]["message"]
        assert (await ask("GET", "/metrics"))[0] == 200
    finally:
        control.stop()


async def test_before_anything_was_read_from_a_store_that_is_away(session):
    control = RunningControl(seeded=False).start()
    try:
        ask = Caller(session, control.url)
        for port in (control.lively.snapshots, control.lively.forecasts):
            port.fault = Transient("away")
        control.do(_until(lambda: control.room.board.store_fault is not None))
        for path in (
            "/v1/models",
            "/v1/models/llama",
            "/v1/forecasts",
            "/v1/forecasts/llama",
            "/v1/slas",
            "/v1/comparisons",
        ):
            status, answer, _ = await ask("GET", path)
            assert (status, answer["error"]["code"]) == (503, "store_unavailable"), path
    finally:
        control.stop()


async def test_a_model_that_is_only_known_by_its_target(session):
    control = RunningControl(seeded=False).start()
    try:
        ask = Caller(session, control.url)
        assert (await ask("PUT", "/v1/slas/planned", {"target_s": 1}))[0] == 200
        status, answer, _ = await ask("GET", "/v1/forecasts/planned")
        assert (status, answer["error"]["code"]) == (404, "no_forecast")
        control.do(control.freshen())
        status, answer, _ = await ask("GET", "/v1/models/planned")
        assert (status, answer["error"]["code"]) == (404, "model_not_found")
    finally:
        control.stop()


async def test_without_a_controller_a_load_is_refused_and_not_lost(
    control: RunningControl, session
):
    ask = Caller(session, control.url)
    from dataclasses import replace

    world = replace(control.lively.world, taken_at_s=control.lively.world.taken_at_s - 100)
    control.do(control.lively.snapshots.put_world(world))
    control.do(control.refresh())
    status, answer, _ = await ask("POST", f"/v1/models/{COLD}/load")
    assert (status, answer["error"]["code"]) == (503, "no_controller")
    assert "s old" in answer["error"]["message"]
    assert (await ask("GET", "/readyz"))[0] == 503


async def test_no_job_queue(session):
    control = RunningControl(kinds=KINDS, minutes=1, jobs=False).start()
    try:
        status, answer, _ = await Caller(session, control.url)("GET", "/v1/jobs")
        assert (status, answer["error"]["code"]) == (503, "no_job_queue")
    finally:
        control.stop()


async def _until(holds: Any) -> None:
    import asyncio

    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never became so")
