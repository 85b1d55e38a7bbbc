"""Replicas by orders of ours in a real distributed mode of LocalAI that nobody else uses.

``make test-localai LOCALAI_DISTRIBUTED_URL=http://…`` with one model in LOCALAI_MODELS and an
admin's key in LOCALAI_API_KEY. It needs two workers, and takes seven minutes, since LocalAI takes a
replica away after five idle ones. Its schedule is removed in the end. Without a real one
tests/integration/test_scalers.py has a server that answers as this one did.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from adapters.clock import ScaledClock
from adapters.localai_calls import LocalAICalls
from adapters.localai_replicas import LocalAIReplicas
from contracts.config import NodeConfig
from contracts.errors import Permanent
from contracts.ids import NodeId

URL = os.environ.get("LOCALAI_DISTRIBUTED_URL", "")
KEY = os.environ.get("LOCALAI_API_KEY") or None
MODEL = os.environ.get("LOCALAI_MODELS", "").partition(",")[0]

pytestmark = [pytest.mark.localai("LOCALAI_DISTRIBUTED_URL"), pytest.mark.timeout(900)]


@pytest.fixture
async def calls() -> LocalAICalls:
    return LocalAICalls(NodeConfig(node=NodeId("d"), url=URL, api_key=KEY), ScaledClock())


@pytest.fixture
async def scaler(calls: LocalAICalls) -> AsyncIterator[LocalAIReplicas]:
    scaler = LocalAIReplicas(calls, ScaledClock())
    await scaler.scale(MODEL, 0)
    yield scaler
    await scaler.scale(MODEL, 0)
    await calls.call("DELETE", f"/api/nodes/scheduling/{MODEL}", limit_s=10.0)
    await scaler.close()


async def until(scaler: LocalAIReplicas, ready: int, within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while (await scaler.replicas(MODEL)).ready != ready:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(1.0)


async def test_more_fewer_and_none(scaler: LocalAIReplicas, calls: LocalAICalls):
    await scaler.scale(MODEL, 2)
    assert (await scaler.replicas(MODEL)).wanted == 2
    await until(scaler, 2, within_s=180.0)
    await scaler.scale(MODEL, 1)
    await until(scaler, 1, within_s=400.0)
    await scaler.scale(MODEL, 0)
    await until(scaler, 0, within_s=10.0)
    rows = await calls.call("GET", "/api/nodes/models", limit_s=10.0)
    assert MODEL not in {row["model_name"] for row in rows.body}


async def test_a_selector_stays_and_what_it_does_not_know_is_refused(
    scaler: LocalAIReplicas, calls: LocalAICalls
):
    rule = {"model_name": MODEL, "min_replicas": 0, "max_replicas": 1}
    selector = {"headstart-test": "nobody"}
    body = {**rule, "node_selector": selector}
    await calls.call("POST", "/api/nodes/scheduling", body, limit_s=10.0)
    await scaler.scale(MODEL, 1)
    told = await calls.call("GET", f"/api/nodes/scheduling/{MODEL}", limit_s=10.0)
    assert told.object()["node_selector"] == '{"headstart-test":"nobody"}'
    assert told.object()["min_replicas"] == 1
    with pytest.raises(Permanent, match="no model"):
        await scaler.scale("headstart-test-no-such-model", 1)
    bad = await calls.call(
        "POST", "/api/nodes/scheduling", {**rule, "min_replicas": 2}, limit_s=10.0
    )
    assert (bad.status, bad.message) == (400, "min_replicas must be <= max_replicas")
