"""Field reports about keys: shown in every way, forwarded as they came, and never written down."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from typing import Any

import aiohttp
import pytest
import redis

from adapters.clock import ScaledClock
from adapters.key_hash import hash_line
from adapters.localai import LocalAIServer
from api.gateway.keys import digest_of
from contracts.config import CallerKey, NodeConfig
from contracts.errors import HeadstartError
from contracts.ids import ModelId, NodeId
from tests.gateway_process import gateway_process

pytestmark = pytest.mark.integration

CHAT = "/v1/chat/completions"
WAYS = [
    ("Authorization", "Bearer {}"),
    ("Authorization", "{}"),
    ("x-api-key", "{}"),
    ("xi-api-key", "{}"),
    ("Cookie", "theme=dark; token={}"),
]


@pytest.fixture
async def session():
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield session


@pytest.mark.case("P098")
@pytest.mark.parametrize(("name", "value"), WAYS)
async def test_a_key_for_localai_goes_on_as_it_came_and_its_401_comes_back(
    kit, session, name, value
):
    said = b'{"error":{"code":401,"message":"Invalid API key","type":"invalid_request_error"}}'

    async def script(seen, writer):
        refusal = ("Content-Type: application/json", "Www-Authenticate: Bearer")
        writer.write(kit.reply(said, status="401 Unauthorized", headers=refusal))

    kit.localai.script = script
    gateway = await kit.start()
    shown = value.format("k3y-for-localai")
    async with session.post(
        gateway.url + CHAT, json={"model": "m"}, headers={name: shown}
    ) as answer:
        assert (answer.status, await answer.read()) == (401, said)
        assert answer.headers["Www-Authenticate"] == "Bearer"
    assert kit.localai.seen[0].all(name) == [shown]
    events = await gateway.told()
    assert "k3y" not in repr(events)
    async with session.get(gateway.url + "/headstart/metrics") as answer:
        assert "k3y" not in await answer.text()


@pytest.mark.case("P098")
async def test_orders_of_our_own_carry_the_configured_key(kit):
    async def script(seen, writer):
        writer.write(kit.reply(b'{"data":[{"id":"m"}],"loaded_models":[]}'))

    kit.localai.script = script
    node = NodeConfig(node=NodeId("localai"), url=kit.localai.url, api_key="configured")
    async with LocalAIServer(node, ScaledClock()) as server:
        for call in (server.models, server.report):
            with contextlib.suppress(HeadstartError):
                await call()
        for order in (server.load, server.unload, server.is_busy):
            with contextlib.suppress(HeadstartError):
                await order(ModelId("m"))
    assert len(kit.localai.seen) >= 6
    assert {one.one("authorization") for one in kit.localai.seen} == {"Bearer configured"}


@pytest.mark.case("P099")
@pytest.mark.parametrize("holds_keys", [False, True])
async def test_a_key_in_the_subprotocols_of_a_handshake(kit, session, holds_keys):
    """Where LocalAI judges, the list goes on as it came; a key of ours is taken out of it."""

    async def script(seen, writer):
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: realtime\r\n\r\n"
        )
        await asyncio.sleep(0.2)
        writer.close()

    kit.localai.script = script
    kit.localai.reads_bodies = False
    ours = CallerKey(name="browser", digest=digest_of(b"k3y"))
    gateway = await kit.start(callers=(ours,) if holds_keys else ())
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    head = (
        "GET /v1/realtime?model=m HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x3JJHMbDL1EzLk\r\n"
    )
    offered = "realtime, openai-insecure-api-key.k3y"
    writer.write(f"{head}Sec-WebSocket-Protocol: {offered}\r\n\r\n".encode())
    answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert answer.startswith("http/1.1 101")
    assert "sec-websocket-protocol: realtime\r\n" in answer
    sent = "realtime" if holds_keys else offered
    assert kit.localai.seen[0].one("sec-websocket-protocol") == sent
    writer.close()
    if not holds_keys:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(f"{head}\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        assert kit.localai.seen[1].all("sec-websocket-protocol") == [], "none is made up"
        writer.close()
    await kit.eventually(lambda: not gateway.service.in_flight())


# Nothing about them looks like a key, so that no filter by looks can hide them.
PLAIN, NAMED, WORKERS, FOREIGN, NODE_KEY = (
    f"canary-{word}-0123456789abcdefghijklmnop" for word in ("p", "q", "r", "s", "t")
)
PASSWORD = "canary-of-redis"


class Talk:
    """Asks a gateway for this and that, and keeps all that it answers."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self.answers = ""

    async def ask(self, method: str, path: str, headers: dict[str, str], **request: Any):
        try:
            async with self._session.request(
                method, self._url + path, headers=headers, **request
            ) as answer:
                text = await answer.text()
                self.answers += f"{answer.status} {dict(answer.headers)} {text}\n"
        except aiohttp.ClientError as error:
            self.answers += f"{error!r}\n"

    async def show(self, key: str) -> None:
        """The key in every way, with requests that are right and wrong."""
        for name, value in WAYS:
            await self.ask("GET", "/v1/models", {name: value.format(key)})
        bearer = {"Authorization": f"Bearer {key}"}
        await self.ask("POST", CHAT, bearer, json={"model": "m"})
        await self.ask("POST", CHAT, bearer, data=b"{odd")
        await self.ask("POST", "/v1/messages", bearer, json={"model": "zzz", "stream": True})
        await self.ask("POST", CHAT, bearer | {"X-Headstart-Class": "odd"}, json={"model": "m"})
        offered = {"Sec-WebSocket-Protocol": f"realtime, openai-insecure-api-key.{key}"}
        with contextlib.suppress(aiohttp.ClientError):
            await self._session.ws_connect(self._url + "/v1/realtime?model=m", headers=offered)


def faults(kit):
    async def break_off(seen, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
        await writer.drain()
        writer.close()

    async def nothing(seen, writer):
        await asyncio.sleep(5)

    async def rubbish(seen, writer):
        writer.write(b"\x00\x01 no http\r\n\r\n")
        writer.close()

    async def refuse(seen, writer):
        writer.write(kit.reply(b'{"error":{"message":"no"}}', status="500 Oops"))

    return kit.localai.answer_ok, break_off, nothing, rubbish, refuse


def bad_files(text: str) -> tuple[str, ...]:
    """Configurations with keys in the wrong place."""
    return (
        f"{text}  keys: [{PLAIN}]\n  prot: {PLAIN}",
        text.replace(hash_line(NAMED), NAMED),
        f"gateway: {{named_keys: {{{PLAIN}: 1}}}}",
        f"gateway:\n  keys: [{PLAIN}",
        f"prot: 1\nredis: {{url: 'redis://u:{PASSWORD}@x'}}",
        f"localai: {{backends: [{{name: a, url: 'http://a', api_key_env: {NODE_KEY}}}]}}",
        f"localai: {{api_key: '{NODE_KEY} and more'}}",
    )


@pytest.mark.case("P098")
async def test_no_key_is_found_in_anything_that_is_written(kit, tmp_path, start_redis, session):
    """A gateway at its most talkative, through faults of all kinds, with keys that are searched."""
    server = start_redis()
    file = tmp_path / "headstart.yaml"
    (tmp_path / "node_key").write_text(NODE_KEY)
    text = f"""
localai: {{url: "{kit.localai.url}", api_key_file: node_key}}
workers: {{gateway_key: {WORKERS}}}
logging: {{level: debug}}
gateway:
  timeouts: {{first_byte_seconds: 0.3, between_bytes_seconds: 0.3, shutdown_grace_seconds: 1}}
  named_keys:
  - {{name: named, hash: "{hash_line(NAMED)}", models: ["m*"], requests_per_minute: 40}}
"""
    file.write_text(text)
    environment = {"REDIS_URL": server.url, "HEADSTART_GATEWAY_KEYS": PLAIN}
    async with gateway_process(tmp_path, environment) as gateway:
        talk = Talk(session, gateway.url)
        for script in faults(kit):
            kit.localai.script = script
            for key in (PLAIN, NAMED, WORKERS, FOREIGN):
                await talk.show(key)
        for times, bad in enumerate(bad_files(text), start=1):
            file.write_text(bad)
            gateway.signal(signal.SIGHUP)
            await gateway.says('"configuration_refused"', times)
        file.write_text(text.replace("_minute: 40", "_minute: 30"))
        gateway.signal(signal.SIGHUP)
        await gateway.says('"configuration_loaded"')
        kit.localai.script = kit.localai.answer_ok
        for _ in range(41):
            await talk.ask("POST", CHAT, {"x-api-key": NAMED}, json={"model": "m"})
        dump = _dump(server.url)
        server.kill()
        await kit.localai.stop()
        await talk.ask("POST", CHAT, {"x-api-key": PLAIN}, json={"model": "m"})
        await talk.ask("GET", "/headstart/metrics", {})
        await talk.ask("GET", "/headstart/readyz", {})
        gateway.signal(signal.SIGTERM)
        assert await gateway.ends() == 0
    for word in ("rate_limited", "permission_denied", "upstream_timeout", "invalid_api_key"):
        assert word in talk.answers
    assert "headstart:events" in dump
    assert '"localai_unreachable"' in gateway.said
    for written in (gateway.said, talk.answers, dump):
        assert "canary" not in written
        assert hash_line(NAMED).partition(":")[2] not in written


def _dump(url: str) -> str:
    """All that a server holds, as text."""
    found = []
    with redis.Redis.from_url(url, protocol=2) as client:
        for key in client.scan_iter():
            kind = client.type(key).decode()
            value = {
                "stream": client.xrange,
                "hash": client.hgetall,
                "string": client.get,
                "set": client.smembers,
                "list": lambda name: client.lrange(name, 0, -1),
                "zset": lambda name: client.zrange(name, 0, -1),
            }[kind](key)
            found.append(f"{key.decode()} {value!r}")
    return json.dumps(found)
