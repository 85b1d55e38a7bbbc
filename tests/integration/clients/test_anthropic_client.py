"""The official ``anthropic`` client through the gateway."""

from __future__ import annotations

import anthropic
import pytest

from contracts.events import RequestCompleted
from tests.gateway_server import RunningGateway, of_kind

pytestmark = pytest.mark.integration

HI = [{"role": "user", "content": "hi there friend"}]
WEATHER = {
    "name": "weather",
    "description": "The weather in a town.",
    "input_schema": {
        "type": "object",
        "properties": {"town": {"type": "string"}},
        "required": ["town"],
    },
}


def test_a_message(claude):
    answer = claude.messages.create(model="talk", max_tokens=4, messages=HI)
    (block,) = answer.content
    assert block.text == "word word word word"
    assert answer.stop_reason == "end_turn"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (3, 4)


@pytest.mark.parametrize("system", ["be kind", [{"type": "text", "text": "be kind"}]])
def test_a_system_prompt(claude, system: object):
    answer = claude.messages.create(model="talk", max_tokens=2, messages=HI, system=system)
    assert answer.usage.input_tokens == 5


def test_a_stream(claude):
    with claude.messages.stream(model="talk", max_tokens=4, messages=HI) as stream:
        texts = list(stream.text_stream)
        final = stream.get_final_message()
    assert texts == ["word "] * 4
    assert final.content[0].text == "word word word word "
    assert (final.stop_reason, final.usage.output_tokens) == ("end_turn", 4)


def test_raw_events(claude):
    stream = claude.messages.create(model="talk", max_tokens=1, messages=HI, stream=True)
    assert [event.type for event in stream if event.type != "ping"] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_a_tool_is_called_and_its_result_answered(claude):
    first = claude.messages.create(model="talk", max_tokens=9, messages=HI, tools=[WEATHER])
    (use,) = first.content
    assert first.stop_reason == "tool_use"
    assert (use.type, use.name, use.input) == ("tool_use", "weather", {"town": "word"})
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}
    second = claude.messages.create(
        model="talk",
        max_tokens=2,
        tools=[WEATHER],
        messages=[
            *HI,
            {
                "role": "assistant",
                "content": [use.model_dump(include={"type", "id", "name", "input"})],
            },
            {"role": "user", "content": [result]},
        ],
    )
    assert second.stop_reason == "end_turn"


def test_a_tool_call_is_streamed(claude):
    with claude.messages.stream(model="talk", max_tokens=9, messages=HI, tools=[WEATHER]) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    assert "".join(pieces) == '{"town":"word"}'
    assert final.content[-1].input == {"town": "word"}
    assert final.stop_reason == "tool_use"


def test_tokens_cannot_be_counted_since_localai_has_no_such_path(claude):
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.count_tokens(model="talk", messages=HI)


def test_models_are_listed_in_localais_own_shape(claude):
    listed = claude.models.list(limit=100)
    assert {"talk", "claude"} <= {model.id for model in listed.data}


def test_an_alias_and_its_headers(claude, gateway: RunningGateway):
    raw = claude.messages.with_raw_response.create(
        model="claude", max_tokens=1, messages=HI, extra_headers={"X-Request-ID": "mine-2"}
    )
    assert raw.headers["x-request-id"] == "mine-2"
    assert raw.headers["x-headstart-model"] == "talk"
    assert raw.parse().model == "claude"
    assert of_kind(gateway.told(), RequestCompleted)[-1].output_tokens == 1


def test_a_model_that_breaks_in_the_middle_of_a_stream(claude, emulator):
    emulator.arm({"kind": "answer_error", "model": "talk", "times": 1, "after_tokens": 2})
    texts = []
    with (
        pytest.raises(anthropic.APIStatusError, match="model inference failed"),
        claude.messages.stream(model="talk", max_tokens=4, messages=HI) as stream,
    ):
        texts.extend(stream.text_stream)
    assert texts == ["word "] * 2


async def test_the_async_client(async_claude):
    answer = await async_claude.messages.create(model="talk", max_tokens=2, messages=HI)
    assert answer.content[0].text == "word word"
    async with async_claude.messages.stream(model="talk", max_tokens=2, messages=HI) as stream:
        assert [text async for text in stream.text_stream] == ["word ", "word "]
