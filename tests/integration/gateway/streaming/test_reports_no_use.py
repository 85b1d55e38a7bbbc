"""Field reports on calls that are no use of a model and load none, replayed."""

from __future__ import annotations

import asyncio
import json

import pytest

from adapters.clock import ScaledClock
from adapters.localai import LocalAIServer
from contracts.config import NodeConfig
from contracts.events import RequestCompleted, RequestReceived
from contracts.ids import ModelId, NodeId
from tests.integration.gateway.streaming.word_streams import ASK, CHAT, told, word

pytestmark = pytest.mark.integration

POLLS = [
    ("GET", "/v1/models"),
    ("GET", "/metrics"),
    ("GET", "/readyz"),
    ("GET", "/system"),
    ("GET", "/api/resources"),
    ("GET", "/headstart/metrics"),
    ("GET", "/headstart/healthz"),
]


@pytest.mark.case("P051")
async def test_polls_do_not_keep_a_model_warm(kit, http):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("m", kit.hot)))
    async with http.post(gateway.url + CHAT, json=ASK) as answer:
        assert answer.status == 200
    for method, path in POLLS * 3:
        async with http.request(method, gateway.url + path) as answer:
            assert answer.status == 200
        await gateway.clock.advance(1.0)
    uses = await told(gateway, RequestReceived | RequestCompleted)
    assert [type(use).__name__ for use in uses] == ["RequestReceived", "RequestCompleted"]
    assert gateway.service.in_flight() == {}
    beats = await gateway.beats()
    assert all(not beat.in_flight for beat in beats[1:])


@pytest.mark.case("P052")
async def test_what_is_no_inference_takes_no_slot_and_loads_nothing(kit, http):
    gateway = await kit.start(slots={ModelId("m"): 1})
    await gateway.publish(kit.table(kit.route("m", kit.hot), kit.route("cold", kit.cold)))
    end = asyncio.Event()

    async def script(seen, writer):
        if seen.method == "POST":
            writer.write(kit.event_stream_head + kit.chunk(word("x")))
            await end.wait()
            writer.write(kit.chunk(word("", finish_reason="stop")) + b"0\r\n\r\n")
        else:
            writer.write(kit.reply(b"", status="404 Not Found"))

    kit.localai.script = script
    answer = await http.post(gateway.url + CHAT, json=ASK)
    await answer.content.readany()
    for path in ("/sw.js", "/favicon.ico", "/static/x.css", "/browse/models", "/no/such/path"):
        async with http.get(gateway.url + path) as passed:
            assert passed.status == 404
            assert "X-Headstart-Decision" not in passed.headers
    end.set()
    await answer.read()
    assert len(await told(gateway, RequestReceived)) == 1
    assert await gateway.wanted() == []


@pytest.mark.case("P044")
async def test_looking_around_loads_no_model(kit, http):
    gateway = await kit.start()
    names = [f"model-{number}" for number in range(12)]
    await gateway.publish(kit.table(*(kit.route(name, kit.cold) for name in names)))
    looks = [("GET", "/v1/models"), ("HEAD", "/"), ("GET", "/api/tags"), ("GET", "/api/ps")]
    looks += [("GET", f"/v1/models/{name}") for name in names]
    looks += [("GET", f"/props?model={name}") for name in names]
    looks += [("GET", f"/upstream/{name}/props") for name in names]
    looks += [("POST", "/api/show")]
    for method, path in looks:
        sent = {"model": names[0]} if method == "POST" else None
        async with http.request(method, gateway.url + path, json=sent) as answer:
            assert answer.status == 200
    await gateway.advance(30.0)
    assert await told(gateway, RequestReceived) == []
    assert await gateway.wanted() == []


@pytest.mark.case("P035")
async def test_a_load_behind_our_back_is_counted(kit, http):
    """A request with other load-time options makes LocalAI load the model anew."""
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("m", kit.hot)))

    async def script(seen, writer):
        await asyncio.sleep(0)
        await gateway.clock.advance(9.0 if b"num_gpu" in seen.body else 0.2)
        writer.write(
            kit.event_stream_head + kit.chunk(word("x", finish_reason="stop")) + b"0\r\n\r\n"
        )

    kit.localai.script = script
    for options in ({}, {}, {}, {}, {"num_gpu": 7}, {}):
        async with http.post(gateway.url + CHAT, json={**ASK, **options}) as answer:
            await answer.read()
    assert [json.loads(seen.body).get("num_gpu") for seen in kit.localai.seen].count(7) == 1
    async with http.get(gateway.url + "/headstart/metrics") as answer:
        text = (await answer.read()).decode()
    assert 'headstart_gateway_unexpected_cold_total{model="m"} 1.0' in text


@pytest.mark.case("P035")
async def test_an_order_to_load_holds_nothing_but_the_name(kit):
    async def script(seen, writer):
        if seen.target.startswith("/v1/models"):
            writer.write(kit.reply(b'{"object":"list","data":[{"id":"a","object":"model"}]}'))
        else:
            writer.write(kit.reply(b'{"loaded":["a"],"message":"model loaded"}'))

    kit.localai.script = script
    node = NodeConfig(node=NodeId("localai"), url=kit.localai.url)
    server = LocalAIServer(node, ScaledClock(1.0))
    await server.load(ModelId("a"))
    await server.close()
    (order,) = [seen for seen in kit.localai.seen if seen.method == "POST"]
    assert (order.target, json.loads(order.body)) == ("/backend/load", {"model": "a"})
