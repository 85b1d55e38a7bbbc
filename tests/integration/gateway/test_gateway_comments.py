"""A stream that waits for its model: comments, and then an answer or the failure as an event."""

from __future__ import annotations

import asyncio

import pytest

from contracts.events import RequestFailed
from contracts.messages import LoadAnswer
from contracts.reasons import Reason
from tests.cold_requests import COLD, accept, post

pytestmark = pytest.mark.integration


async def test_a_waiting_stream_gets_comments_and_then_its_answer(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    stream = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'

    async def script(seen, writer):
        assert seen.one("accept-encoding") is None
        writer.write(kit.event_stream_head + kit.chunk(stream) + b"0\r\n\r\n")

    kit.localai.script = script
    waiting = post(session, gateway, stream=True)
    await kit.eventually(gateway.service.waiting)
    for _ in range(16):
        await accept(gateway, expected_s=40.0)
        await gateway.advance(2.0)
    await gateway.publish(kit.table(kit.route("cold", kit.hot), made_at_s=1_032.0))
    status, headers, body = await waiting
    assert status == 200
    assert headers["Content-Type"] == "text/event-stream"
    assert headers["X-Accel-Buffering"] == "no"
    assert headers["X-Headstart-Cold"] == "true"
    assert body == (
        b": headstart waiting 15 s of about 40 s\n\n: headstart waiting 30 s of about 40 s\n\n"
        + stream
    )


@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("/v1/chat/completions", b"data: [DONE]\n\n"),
        ("/v1/messages", b'"type":"model_cooldown","message":'),
        ("/v1/responses", b'"code":"model_cooldown"}}\n\n'),
    ],
)
async def test_after_comments_a_failure_is_an_event(kit, session, path, last):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))

    async def run():
        async with session.post(gateway.url + path, json={"model": "cold", "stream": True}) as got:
            return got.status, await got.read()

    waiting = asyncio.create_task(run())
    await kit.eventually(gateway.service.waiting)
    for _ in range(8):
        await accept(gateway)
        await gateway.advance(2.0)
    await gateway.to_gateways.send(
        LoadAnswer(model=COLD, accepted=False, reason=Reason.COOL_DOWN, message="boom")
    )
    status, body = await waiting
    assert status == 200
    assert body.startswith(b": headstart waiting 15 s\n\n")
    assert b"boom" in body
    assert last in body
    (failed,) = [one for one in await gateway.told() if isinstance(one, RequestFailed)]
    assert (failed.status, failed.error) == (200, "model_cooldown")


async def test_after_comments_an_error_of_localai_is_an_event(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))

    async def script(seen, writer):
        body = b'{"error": {"message": "context is full", "code": 400}}'
        writer.write(kit.reply(body, status="400 Bad Request"))

    kit.localai.script = script
    waiting = post(session, gateway, stream=True)
    await kit.eventually(gateway.service.waiting)
    for _ in range(8):
        await accept(gateway)
        await gateway.advance(2.0)
    await gateway.publish(kit.table(kit.route("cold", kit.hot), made_at_s=1_016.0))
    _, _, body = await waiting
    assert b"context is full" in body
    assert body.endswith(b"data: [DONE]\n\n")
