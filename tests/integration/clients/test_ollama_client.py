"""The official ``ollama`` client through the gateway, on LocalAI's Ollama shim."""

from __future__ import annotations

import ollama
import pytest

from contracts.events import RequestCompleted
from tests.gateway_server import RunningGateway, of_kind

pytestmark = pytest.mark.integration

HI = [{"role": "user", "content": "hi there friend"}]


def test_chat(llama, gateway: RunningGateway):
    answer = llama.chat(model="talk", messages=HI, options={"num_predict": 3})
    assert answer.message.content == "word word word"
    assert (answer.done, answer.done_reason, answer.eval_count) == (True, "stop", 3)
    told = of_kind(gateway.told(), RequestCompleted)[-1]
    assert (told.model, told.input_tokens, told.output_tokens) == ("talk", 3, 3)


def test_chat_stream(llama):
    parts = list(llama.chat(model="talk", messages=HI, stream=True))
    assert "".join(part.message.content for part in parts) == "word " * 6
    assert [part.done for part in parts] == [False] * 6 + [True]


def test_tools_are_offered_and_localai_leaves_them_out(llama):
    def weather(town: str) -> str:
        """The weather.

        Args:
            town: where
        """
        return town

    answer = llama.chat(model="talk", messages=HI, tools=[weather])
    assert answer.message.tool_calls is None
    assert answer.message.content.startswith("word")


def test_generate(llama):
    answer = llama.generate(model="talk", prompt="hi", options={"num_predict": 2})
    assert answer.response == "word word"
    parts = list(llama.generate(model="talk", prompt="hi", stream=True))
    assert "".join(part.response for part in parts) == "word " * 6


def test_a_load_only_call_is_answered_at_once(llama):
    assert llama.generate(model="talk").done_reason == "load"


def test_embed(llama):
    answer = llama.embed(model="vectors", input=["a", "b"])
    assert len(answer.embeddings) == 2
    assert len(answer.embeddings[0]) == 8


def test_list_show_ps(llama):
    llama.generate(model="talk", prompt="hi")
    assert "talk:latest" in {model.model for model in llama.list().models}
    shown = llama.show("talk")
    assert "completion" in shown.capabilities
    assert "talk:latest" in {model.model for model in llama.ps().models}


def test_a_tagged_name_is_one_that_localai_does_not_know(llama):
    with pytest.raises(ollama.ResponseError) as caught:
        llama.chat(model="talk:latest", messages=HI)
    assert caught.value.status_code == 404


def test_a_model_that_breaks_in_the_middle_of_a_stream(llama, emulator):
    emulator.arm({"kind": "answer_error", "model": "talk", "times": 1, "after_tokens": 2})
    parts = list(llama.chat(model="talk", messages=HI, stream=True))
    assert parts[-1].done_reason == "error"


async def test_the_async_client(async_llama):
    answer = await async_llama.chat(model="talk", messages=HI)
    assert answer.message.content.startswith("word")
    parts = [
        part async for part in await async_llama.generate(model="talk", prompt="x", stream=True)
    ]
    assert len(parts) == 7
