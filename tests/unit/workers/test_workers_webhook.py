"""Callers' servers are told that their jobs are over."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace

import pytest

from adapters.webhooks import check_webhook
from contracts.errors import Invalid, Transient
from simulator.clock import VirtualClock
from simulator.memory_jobs import (
    MemoryInferenceGateway,
    MemoryJobQueue,
    MemoryJobResults,
    MemoryNotifier,
)
from simulator.memory_ports import MemoryForecastStore, MemorySnapshotStore
from workers.handlers.webhook import SIGNATURE_HEADER, run
from workers.tools import JobContext, Tools

PAYLOAD = {"url": "https://there/hook", "job_id": "bg_1", "status": "completed"}
CONTEXT = JobContext(job_id="bg_1-webhook", queue="maintenance", waited_s=0.0)


@pytest.fixture
def notifier() -> MemoryNotifier:
    return MemoryNotifier()


@pytest.fixture
def tools(notifier: MemoryNotifier) -> Tools:
    return Tools(
        clock=VirtualClock(1_000.5),
        results=MemoryJobResults(),
        jobs=MemoryJobQueue(),
        gateway=MemoryInferenceGateway(),
        snapshots=MemorySnapshotStore(),
        forecasts=MemoryForecastStore(),
        logs={},
        notifier=notifier,
    )


async def test_the_webhook_gets_id_and_status(tools: Tools, notifier: MemoryNotifier):
    assert await run(PAYLOAD, CONTEXT, tools) == {"told": True}
    ((url, body, headers),) = notifier.told
    assert url == "https://there/hook"
    assert json.loads(body) == {"id": "bg_1", "object": "background.job", "status": "completed"}
    assert SIGNATURE_HEADER not in headers
    assert headers["X-Request-ID"] == "bg_1-webhook", "the same however often it is told"


async def test_with_a_secret_time_and_body_are_signed(tools: Tools, notifier: MemoryNotifier):
    await run(PAYLOAD, CONTEXT, replace(tools, webhook_secret="s3cret"))
    ((_, body, headers),) = notifier.told
    expected = hmac.new(b"s3cret", b"1000." + body, hashlib.sha256).hexdigest()
    assert headers[SIGNATURE_HEADER] == f"t=1000,v1={expected}"


@pytest.mark.parametrize("payload", [{}, PAYLOAD | {"more": "x"}, PAYLOAD | {"url": 3}])
async def test_what_is_no_payload_is_refused(payload, tools: Tools):
    with pytest.raises(Invalid, match="payload"):
        await run(payload, CONTEXT, tools)


async def test_a_worker_that_tells_nobody_says_so(tools: Tools):
    with pytest.raises(Invalid, match="tells nobody"):
        await run(PAYLOAD, CONTEXT, replace(tools, notifier=None))


async def test_a_server_that_is_away_is_told_later(tools: Tools, notifier: MemoryNotifier):
    notifier.fault = Transient("away")
    with pytest.raises(Transient):
        await run(PAYLOAD, CONTEXT, tools)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://there/x",
        "there",
        "",
        "http://",
        "http://user:pass@there/",
        "http://[::1",
        "http://there:port/",
        "http://127.0.0.1/",
        "http://10.1.2.3/",
        "http://192.168.0.1:8080/x",
        "http://169.254.169.254/latest/meta-data",
        "http://0.0.0.0/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[fe80::1]/",
        "http://224.0.0.1/",
    ],
)
def test_urls_that_lead_into_our_own_network_are_refused(url: str):
    with pytest.raises(Invalid, match="webhook"):
        check_webhook(url, allow_private=False)


@pytest.mark.parametrize("url", ["https://there.example/x?y=1", "http://8.8.8.8/"])
def test_public_ones_are_taken(url: str):
    check_webhook(url, allow_private=False)


def test_where_it_is_allowed_our_own_are_taken_too():
    check_webhook("http://127.0.0.1:9/", allow_private=True)
