"""Keep-alive comments while a cold model loads, as the clients' own parsers read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import ollama
import openai
import pytest

from contracts.world import Residency
from tests.emulator_server import RunningEmulator
from tests.gateway_server import RunningGateway

pytestmark = pytest.mark.integration

HI: Any = [{"role": "user", "content": "hi"}]
KEY = "sk-anything"
MODELS = (
    {"name": "slow", "load_s": 20.0, "answer_tokens": 3},
    {"name": "dead", "load_s": 20.0, "answer_tokens": 3},
)


@pytest.fixture
def gateway() -> Iterator[RunningGateway]:
    with (
        RunningEmulator(MODELS, exact_load_times=True) as emulator,
        RunningGateway(emulator.url, keepalive_s=4.0, min_load_budget_s=900.0) as running,
    ):
        emulator.arm({"kind": "load_fail", "model": "dead"})
        running.routes({"slow": Residency.COLD, "dead": Residency.COLD})
        yield running


@pytest.fixture
def ai(gateway: RunningGateway) -> Iterator[Any]:
    with openai.OpenAI(base_url=gateway.url + "/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture
def claude(gateway: RunningGateway) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=gateway.url, api_key=KEY, max_retries=0) as client:
        yield client


@pytest.mark.case("P063")
def test_openai_chat(ai):
    raw = ai.chat.completions.with_raw_response.create(model="slow", messages=HI, stream=True)
    assert raw.headers["x-headstart-cold"] == "true"
    assert raw.headers["content-type"].startswith("text/event-stream")
    texts = [chunk.choices[0].delta.content or "" for chunk in raw.parse()]
    assert "".join(texts) == "word word word "


@pytest.mark.case("P063")
def test_the_comments_are_there(ai):
    """What the parsers above have read over."""
    with ai.chat.completions.with_streaming_response.create(
        model="slow", messages=HI, stream=True
    ) as answer:
        lines = list(answer.iter_lines())
    comments = [line for line in lines if line.startswith(":")]
    assert len(comments) >= 2
    assert all(line.startswith(": headstart ") for line in comments)
    first_data = next(at for at, line in enumerate(lines) if line.startswith("data:"))
    assert all(at < first_data for at, line in enumerate(lines) if line.startswith(":"))


@pytest.mark.case("P063")
def test_openai_completions(ai):
    stream = ai.completions.create(model="slow", prompt="hi", stream=True)
    assert "".join(chunk.choices[0].text or "" for chunk in stream) == "word word word "


@pytest.mark.case("P063")
def test_openai_responses(ai):
    with ai.responses.stream(model="slow", input="hi") as stream:
        assert stream.get_final_response().output_text == "word word word "


@pytest.mark.case("P063")
def test_anthropic(claude):
    with claude.messages.stream(model="slow", max_tokens=3, messages=HI) as stream:
        assert "".join(stream.text_stream) == "word word word "


def test_ollama_gets_no_comments_since_its_lines_are_json(gateway: RunningGateway):
    with ollama.Client(host=gateway.url) as llama:
        parts = list(llama.chat(model="slow", messages=HI, stream=True))
    assert "".join(part.message.content or "" for part in parts) == "word word word "


def test_a_call_that_is_no_stream_waits_for_its_model(ai):
    raw = ai.chat.completions.with_raw_response.create(model="slow", messages=HI)
    assert raw.headers["x-headstart-cold"] == "true"
    assert int(raw.headers["x-headstart-queue-ms"]) > 0


def test_a_load_that_fails_under_openais_stream_is_raised(ai):
    stream = ai.chat.completions.create(model="dead", messages=HI, stream=True)
    with pytest.raises(openai.APIError, match="could not be loaded") as caught:
        list(stream)
    body: Any = caught.value.body
    assert body["type"] == "model_cooldown"


def test_a_load_that_fails_under_a_responses_stream_is_raised(ai):
    stream = ai.responses.create(model="dead", input="hi", stream=True)
    with pytest.raises(openai.APIError, match="could not be loaded"):
        list(stream)


def test_a_load_that_fails_under_anthropics_stream_is_raised(claude):
    stream = claude.messages.create(model="dead", max_tokens=3, messages=HI, stream=True)
    with pytest.raises(anthropic.APIStatusError, match="could not be loaded") as caught:
        list(stream)
    body: Any = caught.value.body
    assert body["error"]["type"] == "model_cooldown"


def test_a_load_that_fails_before_ollamas_stream_begins(gateway: RunningGateway):
    with ollama.Client(host=gateway.url) as llama:
        parts = llama.chat(model="dead", messages=HI, stream=True)
        with pytest.raises(ollama.ResponseError, match="could not be loaded") as caught:
            list(parts)
    assert caught.value.status_code == 503
