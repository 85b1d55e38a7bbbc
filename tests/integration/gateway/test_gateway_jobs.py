"""Files, batches and background jobs at the gateway's address: the control API answers."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator

import aiohttp
import openai
import pytest

from contracts.config import CallerKey, ControlConfig, GatewayConfig
from simulator.memory_jobs import MemoryJobQueue
from tests.control_server import RunningControl
from tests.emulator_server import RunningEmulator
from tests.gateway_server import RunningGateway

pytestmark = pytest.mark.integration

KEY, BOUND = "key-" + "k" * 40, "bound-" + "b" * 40
CALLERS = tuple(
    CallerKey(name=name, digest=hashlib.sha256(key.encode()).digest(), models=models)
    for name, key, models in (("any", KEY, ()), ("bound", BOUND, ("chat-*",)))
)
CHAT = {"model": "chat-a", "messages": [{"role": "user", "content": "Hi"}]}
LINE = b'{"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{"model":"m"}}\n'


@pytest.fixture(scope="module")
def control() -> Iterator[RunningControl]:
    control = RunningControl(
        config=ControlConfig(admin_key="admin-key"),
        gateway=GatewayConfig(callers=CALLERS),
        seeded=False,
    ).start()
    yield control
    control.stop()


@pytest.fixture(scope="module")
def gateway(control: RunningControl) -> Iterator[RunningGateway]:
    with (
        RunningEmulator([{"name": "chat-a", "footprint_mb": 100, "load_s": 1}]) as localai,
        RunningGateway(localai.url, callers=CALLERS, control_url=control.url) as gateway,
    ):
        yield gateway


@pytest.fixture
async def session(gateway: RunningGateway) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with aiohttp.ClientSession(gateway.url, headers=headers) as session:
        yield session


@pytest.mark.parametrize("key", [KEY, BOUND])
def test_the_official_client_makes_batches_at_the_gateway(gateway: RunningGateway, key: str):
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0) as client:
        content = LINE * 20_000
        file = client.files.create(file=("in.jsonl", content), purpose="batch")
        assert file.bytes == len(content)
        assert client.files.content(file.id).content == content
        batch = client.batches.create(
            input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h"
        )
        assert client.batches.cancel(batch.id).status == "cancelling"
        assert batch.id in [one.id for one in client.batches.list()]
        with pytest.raises(openai.NotFoundError):
            client.batches.retrieve("batch_none")


def test_a_wrong_key_is_refused_by_whoever_answers(gateway: RunningGateway):
    with (
        openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.batches.list()


async def test_who_would_rather_come_back_gets_a_job(
    control: RunningControl, session: aiohttp.ClientSession
):
    async with session.post(
        "/v1/chat/completions", json=CHAT, headers={"Prefer": "wait=5, respond-async"}
    ) as answer:
        assert (answer.status, answer.headers["Preference-Applied"]) == (202, "respond-async")
        job = await answer.json()
        assert answer.headers["Location"] == f"/v1/background/{job['id']}"
    jobs = control.room.ports.jobs
    assert isinstance(jobs, MemoryJobQueue)
    known = jobs.status(job["id"])
    assert known is not None
    assert known["payload"] == {"path": "/v1/chat/completions", "body": CHAT}
    assert known["queue"] == "realtime-fallback"
    async with session.get(job["status_url"]) as answer:
        assert (await answer.json())["status"] == "queued"


async def test_who_may_wait_long_waits_with_the_others(
    control: RunningControl, session: aiohttp.ClientSession
):
    headers = {"Prefer": "respond-async", "X-Headstart-Class": "background"}
    async with session.post("/v1/chat/completions", json=CHAT, headers=headers) as answer:
        job = await answer.json()
    jobs = control.room.ports.jobs
    assert isinstance(jobs, MemoryJobQueue)
    known = jobs.status(job["id"])
    assert known is not None
    assert known["queue"] == "background"


async def test_a_webhook_goes_along(control: RunningControl, session: aiohttp.ClientSession):
    async with session.post(
        "/v1/background/v1/chat/completions",
        json=CHAT,
        headers={"X-Headstart-Webhook": "https://there/x"},
    ) as answer:
        job = await answer.json()
    jobs = control.room.ports.jobs
    assert isinstance(jobs, MemoryJobQueue)
    known = jobs.status(job["id"])
    assert known is not None
    assert known["payload"]["webhook"] == "https://there/x"  # type: ignore[index] # a mapping


async def test_other_preferences_and_other_paths_change_nothing(session: aiohttp.ClientSession):
    async with session.post(
        "/v1/chat/completions", json=CHAT, headers={"Prefer": "wait=5"}
    ) as answer:
        assert answer.status == 200
        assert (await answer.json())["model"] == "chat-a"
    async with session.get("/v1/models", headers={"Prefer": "respond-async"}) as answer:
        assert answer.status == 200


async def test_without_a_control_api_the_paths_are_localais_and_one_that_is_away_is_told():
    with (
        RunningEmulator([{"name": "chat-a", "footprint_mb": 100, "load_s": 1}]) as localai,
        RunningGateway(localai.url) as plain,
        RunningGateway(localai.url, control_url="http://127.0.0.1:9") as cut,
    ):
        async with aiohttp.ClientSession() as session:
            async with session.get(plain.url + "/v1/batches") as answer:
                assert answer.status == 404
            async with session.get(cut.url + "/v1/batches") as answer:
                assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
                assert (await answer.json())["error"]["type"] == "no_backend"
            async with session.post(cut.url + "/v1/chat/completions", json=CHAT) as answer:
                assert answer.status == 200
