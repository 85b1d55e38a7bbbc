"""Keys of the gateway's own over a real socket: models, classes, rates and lists."""

from __future__ import annotations

import asyncio
import gzip
import json

import aiohttp
import pytest
from yarl import URL

from api.gateway.keys import digest_of
from contracts.config import CallerKey, ClassHeader, NodeConfig
from contracts.events import PriorityClass, RequestReceived
from contracts.ids import ModelId, NodeId

pytestmark = pytest.mark.integration

UI = {"Authorization": "Bearer ui-secret"}
BULK = {"x-api-key": "bulk-secret"}
FREE = {"Authorization": "Bearer free-secret"}
CALLERS = (
    CallerKey(
        name="ui",
        digest=digest_of(b"ui-secret"),
        models=("chat-*", "best"),
        priority=PriorityClass.REALTIME,
    ),
    CallerKey(
        name="bulk",
        digest=digest_of(b"bulk-secret"),
        priority=PriorityClass.BACKGROUND,
        requests_per_min=3.0,
    ),
    CallerKey(
        name="free",
        digest=digest_of(b"free-secret"),
        priority=PriorityClass.BATCH,
        class_header=ClassHeader.ANY,
    ),
)
LIST = (
    b'{"object":"list","data":[{"id":"chat-1","object":"model"},{"id":"secret","object":"model"},'
    b'{"id":"best","object":"model"},{"id":"llama","object":"model"}]}'
)


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def gateway(kit):
    gateway = await kit.start(callers=CALLERS)
    await gateway.publish(
        kit.table(kit.route("llama", kit.hot), aliases={"best": ModelId("llama")})
    )
    return gateway


async def post(session, gateway, path, headers, **request):
    async with session.post(gateway.url + path, headers=headers, **request) as answer:
        return answer.status, dict(answer.headers), await answer.read()


CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (CHAT, {"model": "chat-1"}, 200),
        (CHAT, {"model": "best"}, 200),
        (CHAT, {"model": "llama"}, 200),  # what the allowed alias stands for
        (CHAT, {"model": "secret"}, 403),
        (CHAT, {}, 403),  # LocalAI would pick one
        (CHAT, {"model": "chat-1", "Model": "secret"}, 403),  # Go reads both spellings
        (CHAT, {"MODEL": "secret"}, 403),
        (CHAT + "?model=secret", {"model": "chat-1"}, 403),
        ("/v1/engines/secret/completions", {}, 403),
        ("/v1/engines/secret/completions", {"model": "chat-1"}, 403),
        ("/v1/engines/chat-2/completions", {}, 200),
        ("/api/chat", {"model": "secret"}, 403),
        ("/v1/messages", {"model": "secret"}, 403),
        ("/v1/text-to-speech/voice", {"model_id": "chat-1", "model": "secret"}, 403),
    ],
)
async def test_models_that_a_key_is_for(kit, gateway, session, path, body, status):
    got, _, answer = await post(session, gateway, path, UI, json=body)
    assert got == status
    if status == 403:
        document = json.loads(answer)
        assert document["error"]["type"] == "permission_denied"
        if path == "/v1/messages":
            assert document["type"] == "error"
        else:
            assert document["error"]["code"] == "model_not_allowed"
        assert kit.localai.seen == []
        assert await gateway.told() == [], "what is not allowed is no demand"


@pytest.mark.parametrize(
    "request_",
    [
        {"data": b'{"model": "chat-1"', "headers": {}},
        {
            "data": gzip.compress(b'{"model": "secret"}', mtime=0),
            "headers": {"Content-Encoding": "gzip"},
        },
        {"data": b"--x--", "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
    ],
)
async def test_a_body_that_cannot_be_read_could_name_any_model(kit, gateway, session, request_):
    headers = UI | request_["headers"]
    status, _, _ = await post(
        session, gateway, CHAT + "?model=chat-1", headers, data=request_["data"]
    )
    assert status == 403
    status, _, _ = await post(session, gateway, CHAT, FREE, data=b"not json")
    assert status == 200, "others are LocalAI's to judge, as ever"


async def test_a_form_is_read_for_its_model(kit, gateway, session):
    for model, status in (("chat-1", 200), ("secret", 403)):
        form = aiohttp.FormData()
        form.add_field("file", b"x" * 100, filename="a.wav")
        form.add_field("model", model)
        got, _, _ = await post(session, gateway, "/v1/audio/transcriptions", UI, data=form)
        assert got == status


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/backend/shutdown", 403),
        ("POST", "/models/apply", 403),
        ("GET", "/api/settings", 403),
        ("GET", "/", 200),
        ("GET", "/v1/models/chat-1", 200),
        ("GET", "/v1/models/secret", 403),
        ("GET", "/version", 200),
        ("GET", "/generated-images/a.png", 200),
        ("GET", "/healthz", 200),
    ],
)
async def test_where_else_such_a_key_may_go(kit, gateway, session, method, path, status):
    async with session.request(method, gateway.url + path, headers=UI) as answer:
        assert answer.status == status
        if status == 403:
            assert (await answer.json())["error"]["code"] == "path_not_allowed"
    async with session.request(method, gateway.url + path, headers=FREE) as answer:
        assert answer.status == 200


async def test_people_can_get_as_far_as_the_sign_in_of_localais_ui(kit, session):
    node = NodeConfig(node=NodeId("localai"), url="", api_key="node-secret")
    gateway = await kit.start(callers=CALLERS, nodes=(node,))
    for method, path, status in [
        ("GET", "/", 200),
        ("GET", "/app/chat", 200),
        ("GET", "/static/logo.png", 200),
        ("GET", "/api/auth/status", 200),
        ("POST", "/api/auth/token-login", 200),
        ("GET", "/static/%2e%2e/api/settings", 401),
        ("GET", "/api/settings", 401),
        ("POST", "/app/x", 401),
        ("GET", "/application", 401),
    ]:
        url = URL(gateway.url + path, encoded=True)
        async with session.request(method, url) as answer:
            assert answer.status == status, path
    assert len(kit.localai.seen) == 5
    assert all(one.one("authorization") is None for one in kit.localai.seen), "nobody is admin"


async def test_its_list_tells_of_its_models_and_all_others_pass_untouched(kit, gateway, session):
    encodings = []

    async def script(seen, writer):
        encodings.append(seen.one("accept-encoding"))
        writer.write(kit.reply(LIST, headers=("Content-Type: application/json", 'ETag: "1"')))

    kit.localai.script = script
    url = gateway.url + "/v1/models"
    async with session.get(url, headers=UI | {"Accept-Encoding": "gzip"}) as answer:
        listed = await answer.json()
        assert "ETag" not in answer.headers
    assert [model["id"] for model in listed["data"]] == ["chat-1", "best", "llama"]
    async with session.get(url, headers=FREE | {"Accept-Encoding": "gzip"}) as answer:
        assert await answer.read() == LIST
        assert answer.headers["ETag"] == '"1"'
    assert encodings == [None, "gzip"]


@pytest.mark.parametrize("body", [b"<html>", b'{"data":' + b" " * (8 * 1024**2) + b"[]}"])
async def test_a_list_that_cannot_be_cut_is_not_shown(kit, gateway, session, body):
    async def script(seen, writer):
        writer.write(kit.reply(body))

    kit.localai.script = script
    async with session.get(gateway.url + "/v1/models", headers=UI) as answer:
        assert answer.status == 502
        assert (await answer.json())["error"]["type"] == "upstream_error"


async def test_a_list_that_is_refused_or_breaks_off_says_so(kit, gateway, session):
    async def refuse(seen, writer):
        writer.write(kit.reply(b'{"error":"x"}', status="500 Oops"))

    kit.localai.script = refuse
    async with session.get(gateway.url + "/v1/models", headers=UI) as answer:
        assert (answer.status, await answer.read()) == (500, b'{"error":"x"}')

    async def break_off(seen, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.close()

    kit.localai.script = break_off
    async with session.get(gateway.url + "/v1/models", headers=UI) as answer:
        assert answer.status == 502

    async def hang(seen, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        await asyncio.sleep(60)

    kit.localai.script = hang
    asked = asyncio.create_task(session.get(gateway.url + "/v1/models", headers=UI))
    await kit.eventually(lambda: len(kit.localai.seen) == 3)
    await asyncio.sleep(0.05)
    await gateway.advance(301.0)
    assert (await asked).status == 504


async def test_classes_that_a_key_has_and_may_ask_for(kit, gateway, session):
    async def status_of(headers, asked=None):
        if asked is not None:
            headers = headers | {"X-Headstart-Class": asked}
        return await post(session, gateway, CHAT, headers, json={"model": "chat-1"})

    assert (await status_of(UI))[0] == 200
    assert (await status_of(UI, "background"))[0] == 200
    assert (await status_of(BULK))[0] == 200
    assert (await status_of(FREE))[0] == 200
    assert (await status_of(FREE, "realtime"))[0] == 200
    status, _, answer = await status_of(BULK, "realtime")
    assert status == 403
    error = json.loads(answer)["error"]
    assert (error["code"], error["param"]) == ("class_not_allowed", "X-Headstart-Class")
    assert "background" in error["message"]
    received = [one for one in await gateway.told() if isinstance(one, RequestReceived)]
    assert [one.priority.value for one in received] == [
        "realtime",
        "background",
        "background",
        "batch",
        "realtime",
    ]


async def test_a_rate_is_kept_and_says_when_to_come_back(kit, gateway, session):
    for _ in range(3):
        assert (await post(session, gateway, CHAT, BULK, json={"model": "m"}))[0] == 200
    status, headers, answer = await post(session, gateway, CHAT, BULK, json={"model": "m"})
    assert status == 429
    assert json.loads(answer)["error"]["type"] == "rate_limited"
    assert headers["Retry-After"] == "20"
    assert headers["x-ratelimit-limit-requests"] == "3"
    assert headers["x-ratelimit-remaining-requests"] == "0"
    assert headers["x-ratelimit-reset-requests"] == "20s"
    status, _, answer = await post(session, gateway, "/v1/messages", BULK, json={"model": "m"})
    assert (status, json.loads(answer)["type"]) == (429, "error")
    async with session.get(gateway.url + "/v1/models", headers=BULK) as listed:
        assert listed.status == 200, "only inference counts"
    assert (await post(session, gateway, CHAT, FREE, json={"model": "m"}))[0] == 200
    await gateway.advance(20.0)
    assert (await post(session, gateway, CHAT, BULK, json={"model": "m"}))[0] == 200


async def test_a_websocket_needs_the_same_rights(kit, gateway, session):
    for query, headers, status in [
        ("?model=secret", UI, 403),
        ("", UI, 403),
        ("?model=chat-1", {}, 401),
    ]:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(gateway.url + "/v1/realtime" + query, headers=headers)
        assert refused.value.status == status
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await session.ws_connect(gateway.url + "/ws/backend-logs/secret", headers=UI)
    assert refused.value.status == 403
    assert kit.localai.seen == []


async def test_our_keys_stay_here_and_the_nodes_key_goes_on(kit, session):
    node = NodeConfig(node=NodeId("localai"), url="", api_key="node-secret")
    gateway = await kit.start(callers=CALLERS, nodes=(node,))
    shown = {"Cookie": "a=b; token=free-secret", "x-api-key": "free-secret"}
    async with session.get(gateway.url + "/x", headers=shown) as answer:
        assert answer.status == 200
    (seen,) = kit.localai.seen
    assert seen.one("authorization") == "Bearer node-secret"
    assert seen.one("cookie") == "a=b"
    assert "free-secret" not in str(seen.headers)
