"""Every call of our side of LocalAI: against the emulator always, against a real one on demand.

``make test-localai LOCALAI_URL=http://…`` runs the second half. It loads and unloads the models
named in LOCALAI_MODELS (by default the first one for chat), and changes nothing else there; give
it a LocalAI that nobody is using. LOCALAI_API_KEY is its key, if it asks for one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from adapters.clock import ScaledClock
from adapters.localai import LocalAIServer
from contracts.config import NodeConfig
from contracts.errors import Permanent, Transient
from contracts.ids import ModelId, NodeId
from contracts.node_facts import Access, Call
from tests.emulator_server import RunningEmulator

URL, KEY = os.environ.get("LOCALAI_URL", ""), os.environ.get("LOCALAI_API_KEY") or None
NAMES = [name for name in os.environ.get("LOCALAI_MODELS", "").split(",") if name]
UNKNOWN = ModelId("headstart-test-no-such-model")
EMULATED_SCALE = 20.0
KINDS = ("chat", "embedding", "rerank", "transcription", "vad", "speech", "detection")
SWITCHES = ("max_active_backends", "watchdog_idle_enabled", "memory_reclaimer_enabled")

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Subject:
    """A LocalAI, ours or a real one, and the models that may be used there."""

    server: LocalAIServer
    url: str
    key: str | None
    names: tuple[ModelId, ...]
    clock: ScaledClock

    @property
    def model(self) -> ModelId:
        return self.names[0]

    def session(self) -> aiohttp.ClientSession:
        headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        return aiohttp.ClientSession(self.url, headers=headers)

    async def get(self, path: str) -> Mapping[str, Any]:
        async with self.session() as http, http.get(path) as answer:
            found: Mapping[str, Any] = await answer.json()
            return found

    async def chat(self, **how: Any) -> int:
        """A plain answer of the model; its status."""
        body = {"model": self.model, "messages": [{"role": "user", "content": "hi"}], **how}
        async with self.session() as http, http.post("/v1/chat/completions", json=body) as answer:
            await answer.read()
            return answer.status

    async def clear(self) -> None:
        """Nothing of what may be used is resident, and nothing cools down."""
        for name in self.names:
            await self.server.unload(name)


def of_kind(kind: str) -> dict[str, Any]:
    return {"name": kind, "kind": kind, "load_s": 3.0, "footprint_mb": 100, "answer_tokens": 100}


@pytest.fixture(params=["emulator", pytest.param("real", marks=pytest.mark.localai)])
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    if request.param == "emulator":
        with RunningEmulator(map(of_kind, KINDS), scale=EMULATED_SCALE) as running:
            clock = ScaledClock(EMULATED_SCALE)
            config = NodeConfig(node=NodeId("n"), url=running.url)
            async with LocalAIServer(config, clock) as server:
                names = tuple(map(ModelId, KINDS))
                yield Subject(server, running.url, None, names, clock)
        return
    clock = ScaledClock(1.0)
    config = NodeConfig(node=NodeId("n"), url=URL, api_key=KEY)
    async with LocalAIServer(config, clock) as server:
        names = tuple(map(ModelId, NAMES)) or await first_for_chat(server)
        there = Subject(server, URL.rstrip("/"), KEY, names, clock)
        await there.clear()
        yield there
        await there.clear()


async def first_for_chat(server: LocalAIServer) -> tuple[ModelId, ...]:
    for name in await server.models():
        if "chat" in await server._uses.of(name):
            return (name,)
    raise AssertionError("it has no model for chat: name some in LOCALAI_MODELS")


async def test_what_it_is(subject):
    facts = await subject.server.facts(fresh=True)
    assert facts.capabilities.version
    assert facts.capabilities.those(Access.UNKNOWN) == ()
    for call in (Call.SYSTEM, Call.SHUTDOWN, Call.MONITOR):
        assert facts.capabilities.access(call) is Access.YES
    settings = await subject.get("/api/settings")
    fights = {warning.setting for warning in facts.warnings}
    assert ("max_active_backends" in fights) is bool(settings.get("max_active_backends"))


async def test_looking_at_it_changes_nothing(subject):
    before = [await subject.get(path) for path in ("/api/settings", "/system")]
    names = await subject.server.models()
    await subject.server.facts(fresh=True)
    await subject.server.report()
    assert [await subject.get(path) for path in ("/api/settings", "/system")] == before
    assert await subject.server.models() == names


async def test_its_models_and_aliases(subject):
    names = await subject.server.models()
    assert set(subject.names) <= set(names)
    assert list(names) == sorted(names)
    aliases = await subject.server.aliases()
    assert not set(aliases) & set(names)


async def test_when_it_began(subject):
    began_s = await subject.server.started_at_s()
    assert began_s is not None
    assert began_s == await subject.server.started_at_s()
    assert began_s < subject.clock.now_s() + 5.0


async def test_a_load_is_seen_and_a_second_one_is_none(subject):
    assert await subject.server.is_busy(subject.model) is None
    await subject.server.load(subject.model)
    assert subject.model in (await subject.server.report()).resident
    assert await subject.server.is_busy(subject.model) is False
    began_s = subject.clock.monotonic_s()
    await subject.server.load(subject.model)
    assert subject.clock.monotonic_s() - began_s < 1.5


async def test_loads_side_by_side_and_one_for_all_who_ask(subject):
    wanted = subject.names[:3]
    await asyncio.gather(*(subject.server.load(name) for name in (*wanted, *wanted)))
    assert set(wanted) <= set((await subject.server.report()).resident)


async def test_each_model_is_warmed_by_a_request_of_its_kind(subject):
    for name in subject.names:
        await subject.server.load(name)
        assert await subject.server.warm(name), name
        assert await subject.server.is_busy(name) is False
    assert set((await subject.server.report()).resident) >= set(subject.names)


async def test_memory_and_limit_as_it_tells_them(subject):
    report = await subject.server.report()
    can = (await subject.server.facts()).capabilities
    if not can.has(Call.RESOURCES):
        assert report.memory_total_bytes is report.memory_used_bytes is report.model_limit is None
        return
    resources = (await subject.get("/api/resources"))["aggregate"]
    assert report.memory_total_bytes == resources["total_memory"]
    assert report.memory_used_bytes is not None
    settings = await subject.get("/api/settings")
    assert report.model_limit == (settings["max_active_backends"] or None)


async def test_what_it_tells_of_a_model(subject):
    estimate = await subject.server.estimate_footprint_bytes(subject.model)
    assert estimate is None or estimate > 0
    profile = await subject.server.read_profile(subject.model)
    if not (await subject.server.facts()).capabilities.has(Call.READ_CONFIG):
        assert estimate is profile is None
        return
    assert profile is not None
    assert subject.model in profile
    assert await subject.server.read_profile(UNKNOWN) is None
    with pytest.raises(Permanent):
        await subject.server.estimate_footprint_bytes(UNKNOWN)


async def test_an_unload_and_one_of_what_is_not_loaded(subject):
    await subject.server.load(subject.model)
    await subject.server.unload(subject.model)
    assert subject.model not in (await subject.server.report()).resident
    assert await subject.server.is_busy(subject.model) is None
    await subject.server.unload(subject.model)
    await subject.server.unload(UNKNOWN)


async def test_a_busy_model_is_told_and_a_stop_waits_for_it(subject):
    await subject.server.load(subject.model)
    asking = asyncio.create_task(subject.chat(max_tokens=120))
    async with subject.clock.timeout(30.0):
        while not await subject.server.is_busy(subject.model):
            assert not asking.done(), "it answered before it was seen to be busy"
    await subject.server.unload(subject.model)
    assert asking.done() or await asking == 200
    assert await asking == 200
    assert subject.model not in (await subject.server.report()).resident


async def test_an_unknown_name_is_never_sent_to_it(subject):
    with pytest.raises(Permanent, match="has no model"):
        await subject.server.load(UNKNOWN)
    # It would have tried the name, and then cooled it down.
    async with (
        subject.session() as http,
        http.post("/v1/chat/completions", json={"model": UNKNOWN, "messages": []}) as answer,
    ):
        assert answer.status == 404


async def test_a_load_that_is_given_up_cools_down_and_says_for_how_long(subject):
    loading = asyncio.create_task(subject.server.load(subject.model))
    # Past the start of the process, which nobody can give up.
    await subject.clock.sleep(2.5)
    if loading.done():
        return  # it loads faster than anybody could leave
    loading.cancel()
    await asyncio.gather(loading, return_exceptions=True)
    cooling = None
    async with subject.clock.timeout(30.0):
        while cooling is None:
            try:
                await subject.server.load(subject.model)
            except Transient as error:
                cooling = error.retry_after_s
            else:
                return  # it was loaded after all
    assert 0.0 <= cooling <= 10.0
    await subject.clock.sleep(cooling + 1.0)
    await subject.server.load(subject.model)
