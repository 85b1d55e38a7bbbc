"""Variants are made in LocalAI, run beside their model, and go without a trace.

Against the emulator always, against a real LocalAI by ``make test-localai LOCALAI_URL=http://…``
(see ``test_localai_itself``): there one model file is written, loaded and removed again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest

from adapters.clock import ScaledClock
from adapters.localai import LocalAIServer
from adapters.localai_model_files import LocalAIModelFiles
from contracts.config import NodeConfig
from contracts.errors import Permanent, Transient
from contracts.ids import ModelId, NodeId
from contracts.variants import Rung, RungKind, made_name
from controller.variant_documents import document_of, is_current, is_ours
from tests.emulator_server import RunningEmulator

URL, KEY = os.environ.get("LOCALAI_URL", ""), os.environ.get("LOCALAI_API_KEY") or None
NAMES = [name for name in os.environ.get("LOCALAI_MODELS", "").split(",") if name]
SCALE = 20.0

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Subject:
    """A LocalAI, a model of it that may be used, and its files."""

    files: LocalAIModelFiles
    server: LocalAIServer
    config: NodeConfig
    model: ModelId

    @property
    def rung(self) -> Rung:
        return Rung(
            model=made_name(self.model, "test"),
            kind=RungKind.CPU,
            is_made=True,
            gpu_layers=0,
            threads=2,
            context_size=512,
        )

    async def chat(self, model: str, *, stream: bool) -> str:
        headers = {} if self.config.api_key is None else {"x-api-key": self.config.api_key}
        message = {"role": "user", "content": "hi"}
        body = {"model": model, "stream": stream, "messages": [message], "max_tokens": 4}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(f"{self.config.url}/v1/chat/completions", json=body) as answer,
        ):
            assert answer.status == 200, await answer.text()
            return await answer.text()


@pytest.fixture(params=["emulator", pytest.param("real", marks=pytest.mark.localai)])
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    if request.param == "emulator":
        with RunningEmulator([{"name": "chat"}], scale=SCALE) as running:
            config = NodeConfig(node=NodeId("n"), url=running.url)
            async for found in opened(config, ScaledClock(SCALE), "chat"):
                yield found
        return
    config = NodeConfig(node=NodeId("n"), url=URL.rstrip("/"), api_key=KEY)
    async for found in opened(config, ScaledClock(1.0), NAMES[0] if NAMES else ""):
        yield found


async def opened(config: NodeConfig, clock: ScaledClock, name: str) -> AsyncIterator[Subject]:
    async with LocalAIServer(config, clock) as server:
        files = LocalAIModelFiles(config, clock)
        found = Subject(files, server, config, ModelId(name or (await server.models())[0]))
        yield found
        await files.remove(found.rung.model)
        await server.unload(found.model)
        await files.close()


async def test_a_variant_is_made_runs_beside_its_model_and_goes(subject):
    files, rung = subject.files, subject.rung
    before = await files.names()
    base = await files.read(subject.model)
    assert base is not None
    assert not is_ours(base)
    await files.write(document_of(subject.model, base, rung))
    assert set(await files.names()) == {*before, rung.model}
    made = await files.read(rung.model)
    assert made is not None
    assert is_ours(made)
    assert is_current(made, base, rung)
    assert (made["gpu_layers"], made["threads"], made["context_size"]) == (0, 2, 512)
    await asyncio.gather(subject.server.load(subject.model), subject.server.load(rung.model))
    assert {subject.model, rung.model} <= set((await subject.server.report()).resident)
    # Both say their own name, once in a document and in each event of a stream.
    quoted = f'"model":"{rung.model}"'
    assert quoted in (await subject.chat(rung.model, stream=False)).replace(": ", ":")
    assert quoted in (await subject.chat(rung.model, stream=True)).replace(": ", ":")
    await files.remove(rung.model)
    assert await files.names() == before
    assert await files.read(rung.model) is None
    assert rung.model not in (await subject.server.report()).resident
    assert await files.read(subject.model) == base


async def test_what_is_not_there_is_no_error_and_what_is_refused_is_one(subject):
    await subject.files.remove(made_name(subject.model, "never"))
    assert await subject.files.read(made_name(subject.model, "never")) is None
    with pytest.raises(Permanent, match="import of None"):
        await subject.files.write({"backend": "none"})
    subject.files.readdress(NodeConfig(node=NodeId("n"), url="http://127.0.0.1:9"))
    with pytest.raises(Transient):
        await subject.files.names()
    subject.files.readdress(subject.config)
