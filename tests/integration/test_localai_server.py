"""``LocalAIServer`` against the emulator: what it makes of LocalAI's answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
import structlog.testing

from adapters.clock import ScaledClock
from adapters.localai import LocalAIServer
from contracts.config import NodeConfig
from contracts.errors import Busy, Permanent, Transient
from contracts.ids import ModelId, NodeId
from contracts.ports import ModelServer
from tests.emulator_server import RunningEmulator

pytestmark = pytest.mark.integration

SCALE = 20.0
MIB = 1024**2
KEY = "k-very-secret"
MODELS = [
    {"name": "a", "footprint_mb": 100, "load_s": 4.0, "aliases": ["al"], "parallel": 4},
    {"name": "b", "footprint_mb": 100, "load_s": 1.0, "scheduling_profile": {"priority": 1}},
    {"name": "org/c", "footprint_mb": 100, "load_s": 1.0, "weights": False},
    {"name": "off", "footprint_mb": 100, "load_s": 1.0, "disabled": True},
]
A, B, C = ModelId("a"), ModelId("b"), ModelId("org/c")


def server_for(url: str, *, key: str | None = KEY, **limits: float) -> LocalAIServer:
    config = NodeConfig(node=NodeId("n1"), url=url + "/", api_key=key)
    return LocalAIServer(config, ScaledClock(SCALE), **limits)


@pytest.fixture
def emulator() -> Iterator[RunningEmulator]:
    with RunningEmulator(
        MODELS, scale=SCALE, capacity_mb=250, api_keys=(KEY,), model_limit=3
    ) as running:
        yield running


@pytest.fixture
async def server(emulator: RunningEmulator) -> AsyncIterator[LocalAIServer]:
    async with server_for(emulator.url) as made:
        yield made


async def arm(emulator: RunningEmulator, **fault: object) -> None:
    async with (
        aiohttp.ClientSession(emulator.url) as http,
        http.post("/emulator/faults", json=fault) as answer,
    ):
        assert answer.status == 200


async def keep_busy(emulator: RunningEmulator, model: str, service_s: float) -> None:
    headers = {"X-Emulator-Service-S": str(service_s), "Authorization": f"Bearer {KEY}"}
    async with (
        aiohttp.ClientSession(emulator.url, headers=headers) as http,
        http.post("/v1/chat/completions", json={"model": model}) as answer,
    ):
        await answer.read()


async def test_it_is_a_model_server(server):
    port: ModelServer = server
    assert isinstance(port, LocalAIServer)


async def test_models_without_aliases_and_disabled_ones(server):
    assert await server.models() == ("a", "b", "org/c")
    assert await server.aliases() == {"al": "a"}


async def test_checksums_that_the_distributed_mode_lays_beside_weights_are_no_models():
    listed = [{"name": name, "footprint_mb": 1} for name in ("a", "weights.gguf.sha256")]
    with RunningEmulator(listed, scale=SCALE) as running:
        async with server_for(running.url, key=None) as server:
            assert await server.models() == ("a",)


async def test_a_load_and_what_is_told_of_it(server):
    report = await server.report()
    assert report.resident == ()
    assert report.memory_total_bytes == 250 * MIB
    assert report.memory_used_bytes == 0
    assert report.model_limit == 3
    assert await server.is_busy(A) is None
    await server.load(A)
    assert await server.is_busy(A) is False
    report = await server.report()
    assert report.resident == ("a",)
    assert report.memory_used_bytes == 100 * MIB
    await server.load(A)  # a second time is no error


async def test_names_with_a_slash_work_everywhere(server):
    await server.load(C)
    assert await server.is_busy(C) is False
    assert await server.estimate_footprint_bytes(C) is None  # it has no weights
    profile = await server.read_profile(C)
    assert profile is not None
    assert "name: org/c" in profile
    await server.unload(C)


async def test_an_unload_and_one_of_what_is_not_loaded(server):
    await server.load(A)
    await server.unload(A)
    assert (await server.report()).resident == ()
    await server.unload(A)
    await server.unload(ModelId("nope"))


async def test_a_busy_model_is_not_unloaded(emulator, server):
    await server.load(A)
    serving = asyncio.create_task(keep_busy(emulator, "a", 60.0))
    await emulator.wait_for("request_started")
    assert await server.is_busy(A) is True
    with pytest.raises(Busy, match="model is still busy: a"):
        await server.unload(A)
    serving.cancel()


async def test_a_loading_model_is_busy_for_an_unload_that_cannot_wait(emulator, server):
    await arm(emulator, kind="load_slow", model="a", extra_s=120)
    loading = asyncio.create_task(server.load(A))
    await emulator.wait_for("load_started")
    with pytest.raises(Busy, match="waiting to shut down"):
        await server.unload(A)
    loading.cancel()


@pytest.mark.parametrize("name", ["nope", "al", "off"])
async def test_an_unknown_name_is_never_sent_to_localai(emulator, server, name):
    with pytest.raises(Permanent, match=f"n1 has no model '{name}'"):
        await server.load(ModelId(name))
    assert emulator.events() == []


async def test_a_model_that_came_later_is_found(emulator, server):
    await server.models()
    headers = {"Authorization": f"Bearer {KEY}"}
    async with (
        aiohttp.ClientSession(emulator.url, headers=headers) as http,
        http.post(
            "/models/import",
            json={"name": "late", "backend": "stub", "emulator": {"footprint_mb": 50}},
        ) as answer,
    ):
        assert answer.status == 200
    await server.load(ModelId("late"))


async def test_a_failed_load_tells_when_to_try_again(emulator, server):
    await arm(emulator, kind="load_fail", model="a", times=1)
    with pytest.raises(Transient, match="CUDA out of memory") as failed:
        await server.load(A)
    assert failed.value.retry_after_s == 10.0
    with pytest.raises(Transient, match="in cooldown") as cooling:
        await server.load(A)
    assert cooling.value.retry_after_s is not None
    assert 1.0 <= cooling.value.retry_after_s <= 10.0


async def test_a_long_cool_down_is_read_in_minutes(emulator, server):
    await arm(emulator, kind="cooldown", model="a", for_s=200)
    with pytest.raises(Transient) as cooling:
        await server.load(A)
    assert cooling.value.retry_after_s is not None
    assert 150.0 < cooling.value.retry_after_s <= 200.0


async def test_a_load_has_its_own_limit_and_giving_up_kills_it(emulator):
    await arm(emulator, kind="load_hang", model="a")
    async with server_for(emulator.url, load_timeout_s=1.0) as impatient:
        with pytest.raises(Transient, match=r"/backend/load: no answer in 40 s"):
            await impatient.load(A)
    await emulator.wait_for("load_cancelled")


async def test_cancelling_a_load_kills_it(emulator, server):
    loading = asyncio.create_task(server.load(A))
    await emulator.wait_for("load_started")
    await asyncio.sleep(0.15)  # past the start of the process
    loading.cancel()
    await emulator.wait_for("load_cancelled")


async def test_a_ghost_is_listed_but_not_busy_and_unloading_clears_it(emulator, server):
    await server.load(A)
    await arm(emulator, kind="backend_crash", model="a")
    report = await server.report()
    assert report.resident == ("a",)
    assert report.memory_used_bytes == 0
    assert await server.is_busy(A) is None
    await server.unload(A)
    assert (await server.report()).resident == ()


async def test_estimates(server):
    assert await server.estimate_footprint_bytes(A) == 100 * MIB
    with pytest.raises(Permanent, match="has no model 'nope'"):
        await server.estimate_footprint_bytes(ModelId("nope"))


async def test_a_models_own_yaml_with_its_unknown_keys(server):
    profile = await server.read_profile(B)
    assert profile is not None
    assert "scheduling_profile:\n  priority: 1" in profile
    assert await server.read_profile(ModelId("nope")) is None


async def test_a_stop_that_fails_is_transient(emulator, server):
    await server.load(A)
    await arm(emulator, kind="unload_500", model="a")
    with pytest.raises(Transient, match="unload of a: 500 error stopping model a"):
        await server.unload(A)


@pytest.mark.parametrize("key", [None, "wrong"])
async def test_a_wrong_key_is_refused_and_no_key_is_ever_shown(emulator, key):
    with structlog.testing.capture_logs() as logs:
        async with server_for(emulator.url, key=key) as stranger:
            with pytest.raises(Permanent, match="401 An authentication key is required") as error:
                await stranger.models()
    assert str(key) not in str(error.value).replace("An authentication key", "")
    assert logs == []
    assert KEY not in repr(NodeConfig(node=NodeId("n"), url="u", api_key=KEY))


async def test_a_server_that_is_away_is_transient(emulator):
    async with server_for("http://127.0.0.1:9") as nobody:
        with pytest.raises(Transient, match="n1: "):
            await nobody.report()
        with pytest.raises(Transient, match="n1: "):
            await nobody.unload(A)


async def test_no_limit_is_none(emulator):
    with RunningEmulator(MODELS[:1], scale=SCALE) as unlimited:
        async with server_for(unlimited.url, key=None) as made:
            report = await made.report()
            assert report.model_limit is None
            assert report.memory_total_bytes == 64 * 1024**3


class Scripted:
    """A server that answers each path with what it was told; 404 for the rest."""

    def __init__(self, answers: dict[str, tuple[int, object]]) -> None:
        self.answers = answers
        self.url = ""

    async def __aenter__(self) -> Scripted:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ")[1].partition("?")[0]
        missing = (404, {"error": {"code": 404, "message": "Resource not found", "type": ""}})
        status, value = self.answers.get(path, missing)
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        writer.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        await writer.drain()
        writer.close()


async def test_a_localai_without_its_ui_tells_less():
    listed = {"data": [{"id": "a"}, {"id": "b"}, {}, 7]}
    async with Scripted(
        {"/v1/models": (200, listed), "/system": (200, {"loaded_models": [{"id": "a"}, {}]})}
    ) as scripted, server_for(scripted.url) as made:  # fmt: skip
        assert await made.models() == ("a", "b")
        assert await made.aliases() == {}
        report = await made.report()
        assert report.resident == ("a",)
        assert report.memory_total_bytes is None
        assert report.memory_used_bytes is None
        assert report.model_limit is None
        assert await made.estimate_footprint_bytes(A) is None
        assert await made.read_profile(A) is None


async def test_odd_answers_are_no_facts():
    aggregate = {"total_memory": "much", "used_memory": True}
    async with Scripted(
        {
            "/system": (200, {"loaded_models": "x"}),
            "/api/resources": (200, {"aggregate": aggregate}),
            "/api/settings": (200, {"single_backend": True, "max_active_backends": 9}),
            "/api/models/vram-estimate": (200, [1]),
            "/api/models/edit/a": (200, {"config": 7}),
            "/v1/models": (200, b"<html>"),
            "/api/aliases": (200, {"not": "a list"}),
            "/backend/monitor": (200, b""),
        }
    ) as scripted, server_for(scripted.url) as made:  # fmt: skip
        report = await made.report()
        assert (report.resident, report.memory_total_bytes, report.model_limit) == ((), None, 1)
        assert await made.estimate_footprint_bytes(A) is None
        assert await made.read_profile(A) is None
        assert await made.aliases() == {}
        assert await made.is_busy(A) is False
        with pytest.raises(Transient, match="answered with no JSON object"):
            await made.models()


@pytest.mark.parametrize(
    ("status", "body", "kind", "retry_after_s"),
    [
        (500, {"loaded": None, "message": "x: backend not found: llama-cpp"}, Permanent, None),
        (500, {"message": 'load is in cooldown; retry after 1h2m3.5s'}, Transient, 3723.5),
        (500, {"message": "gone"}, Transient, 10.0),
        (503, {"error": {"message": "at capacity; retry after 7s"}}, Transient, 7.0),
        (503, {"error": "draining"}, Transient, None),
        (400, {"message": "model is required"}, Permanent, None),
    ],
)  # fmt: skip
async def test_what_a_refused_load_means(status, body, kind, retry_after_s):
    async with Scripted(
        {"/v1/models": (200, {"data": [{"id": "a"}]}), "/backend/load": (status, body)}
    ) as scripted, server_for(scripted.url) as made:  # fmt: skip
        with pytest.raises(kind) as refused:
            await made.load(A)
        assert getattr(refused.value, "retry_after_s", None) == retry_after_s


async def test_an_endless_answer_is_not_read_to_its_end():
    async with (
        Scripted({"/system": (200, bytes(9 * MIB))}) as scripted,
        server_for(scripted.url) as made,
    ):
        with pytest.raises(Transient, match="is over 8388608 bytes"):
            await made.report()
