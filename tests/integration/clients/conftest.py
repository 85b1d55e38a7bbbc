"""The official clients, unchanged, through a gateway in front of an emulated LocalAI."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import anthropic
import ollama
import openai
import pytest

from contracts.world import Residency
from tests.emulator_server import RunningEmulator
from tests.gateway_server import RunningGateway

KEY = "sk-anything"

MODELS = (
    {"name": "talk", "load_s": 0.1, "answer_tokens": 6, "aliases": ["gpt-4o", "claude"]},
    {"name": "wordy", "load_s": 0.1, "answer_tokens": 4, "keeps_format": False},
    {"name": "org/named:q4", "load_s": 0.1, "answer_tokens": 2},
    {"name": "vectors", "kind": "embedding", "load_s": 0.1},
    {"name": "voice", "kind": "speech", "load_s": 0.1},
    {"name": "ears", "kind": "transcription", "load_s": 0.1},
    {"name": "painter", "kind": "image", "load_s": 0.1},
)


@pytest.fixture(scope="package")
def emulator() -> Iterator[RunningEmulator]:
    with RunningEmulator(MODELS, exact_load_times=True) as running:
        yield running


@pytest.fixture(scope="package")
def gateway(emulator: RunningEmulator) -> Iterator[RunningGateway]:
    with RunningGateway(emulator.url) as running:
        hot = {str(model["name"]): Residency.HOT for model in MODELS}
        running.routes(hot, aliases={"gpt-4o": "talk", "claude": "talk"})
        yield running


@pytest.fixture
def ai(gateway: RunningGateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=gateway.url + "/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
async def async_ai(gateway: RunningGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    url = gateway.url + "/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def claude(gateway: RunningGateway) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=gateway.url, api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
async def async_claude(gateway: RunningGateway) -> AsyncIterator[anthropic.AsyncAnthropic]:
    url = gateway.url
    async with anthropic.AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def llama(gateway: RunningGateway) -> Iterator[ollama.Client]:
    with ollama.Client(host=gateway.url) as client:
        yield client


@pytest.fixture
async def async_llama(gateway: RunningGateway) -> AsyncIterator[ollama.AsyncClient]:
    async with ollama.AsyncClient(host=gateway.url) as client:
        yield client
