"""The official ``openai`` client through the gateway: chat, tools, formats, responses."""

from __future__ import annotations

import json

import openai
import pytest
from pydantic import BaseModel

pytestmark = pytest.mark.integration

HI = [{"role": "user", "content": "hi there friend"}]
FUNCTION = {
    "name": "weather",
    "description": "The weather in a town.",
    "parameters": {
        "type": "object",
        "properties": {
            "town": {"type": "string"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["town"],
    },
}
WEATHER = {"type": "function", "function": FUNCTION}
FLAT_WEATHER = {"type": "function", **FUNCTION, "strict": False}


class Person(BaseModel):
    name: str
    age: int
    likes: list[str]


def test_chat(ai):
    answer = ai.chat.completions.create(model="talk", messages=HI)
    (choice,) = answer.choices
    assert choice.message.content == "word word word word word word"
    assert choice.finish_reason == "stop"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 6)
    assert answer.model == "talk"


def test_chat_cut_by_max_tokens(ai):
    answer = ai.chat.completions.create(model="talk", messages=HI, max_completion_tokens=2)
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content == "word word"


def test_several_choices(ai):
    answer = ai.chat.completions.create(model="talk", messages=HI, n=2)
    assert len(answer.choices) == 2


def test_stream_with_usage(ai):
    stream = ai.chat.completions.create(
        model="talk", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "word " * 6
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 9
    assert chunks[-2].choices[0].finish_reason == "stop"


def test_stream_helper_puts_the_message_together(ai):
    with ai.chat.completions.stream(model="talk", messages=HI) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert kinds.count("content.delta") == 6
    assert final.choices[0].message.content == "word " * 6


def test_an_alias_is_answered_by_its_own_name(ai):
    raw = ai.chat.completions.with_raw_response.create(model="gpt-4o", messages=HI)
    assert raw.parse().model == "gpt-4o"
    assert raw.headers["x-headstart-model"] == "talk"


def test_a_tool_is_called_and_its_result_answered(ai):
    first = ai.chat.completions.create(model="talk", messages=HI, tools=[WEATHER])
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    (call,) = message.tool_calls
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"town": "word", "unit": "celsius"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    second = ai.chat.completions.create(
        model="talk",
        messages=[*HI, message.model_dump(exclude_none=True), result],
        tools=[WEATHER],
    )
    assert second.choices[0].finish_reason == "stop"
    assert second.choices[0].message.content.startswith("word")


def test_no_tool_is_called_where_none_may_be(ai):
    answer = ai.chat.completions.create(
        model="talk", messages=HI, tools=[WEATHER], tool_choice="none"
    )
    assert answer.choices[0].message.tool_calls is None


def test_a_tool_call_is_streamed_in_pieces(ai):
    with ai.chat.completions.stream(model="talk", messages=HI, tools=[WEATHER]) as stream:
        deltas = [
            event.arguments_delta
            for event in stream
            if event.type == "tool_calls.function.arguments.delta"
        ]
        final = stream.get_final_completion()
    (call,) = final.choices[0].message.tool_calls
    assert "".join(deltas) == call.function.arguments == '{"town":"word","unit":"celsius"}'
    assert final.choices[0].finish_reason == "tool_calls"


def test_a_schema_is_parsed_into_the_callers_class(ai):
    answer = ai.chat.completions.parse(model="talk", messages=HI, response_format=Person)
    assert answer.choices[0].message.parsed == Person(name="word", age=1, likes=["word"])


def test_a_json_object(ai):
    answer = ai.chat.completions.create(
        model="talk", messages=HI, response_format={"type": "json_object"}
    )
    assert json.loads(answer.choices[0].message.content) == {"answer": "word"}


def test_a_streamed_schema(ai):
    with ai.chat.completions.stream(model="talk", messages=HI, response_format=Person) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.parsed.age == 1


def test_completions(ai):
    answer = ai.completions.create(model="talk", prompt=["one", "two"], max_tokens=3)
    assert [choice.text for choice in answer.choices] == ["word word word"] * 2
    stream = ai.completions.create(model="talk", prompt="one", stream=True)
    assert "".join(chunk.choices[0].text or "" for chunk in stream) == "word " * 6


def test_responses(ai):
    answer = ai.responses.create(model="talk", input="hi there friend")
    assert answer.output_text == "word word word word word word"
    assert answer.usage.output_tokens == 6
    assert ai.responses.retrieve(answer.id).output_text == answer.output_text


def test_responses_stream(ai):
    with ai.responses.stream(model="talk", input="hi") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == final.output_text == "word " * 6
    assert final.status == "completed"


def test_responses_call_a_tool(ai):
    first = ai.responses.create(model="talk", input="hi", tools=[FLAT_WEATHER])
    (call,) = first.output
    assert (call.type, call.name) == ("function_call", "weather")
    second = ai.responses.create(
        model="talk",
        tools=[FLAT_WEATHER],
        input=[
            {"role": "user", "content": "hi"},
            call.model_dump(exclude_none=True),
            {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"},
        ],
    )
    assert second.output_text.startswith("word")


def test_responses_stream_a_tool_call(ai):
    with ai.responses.stream(model="talk", input="hi", tools=[FLAT_WEATHER]) as stream:
        kinds = [event.type for event in stream]
        (call,) = stream.get_final_response().output
    assert "response.function_call_arguments.delta" in kinds
    assert json.loads(call.arguments)["town"] == "word"


def test_responses_parse_a_schema(ai):
    answer = ai.responses.parse(model="talk", input="hi", text_format=Person)
    assert answer.output_parsed == Person(name="word", age=1, likes=["word"])


def test_responses_stream_says_when_the_model_broke(ai, emulator):
    emulator.arm({"kind": "answer_error", "model": "talk", "times": 1, "after_tokens": 2})
    stream = ai.responses.create(model="talk", input="hi", stream=True)
    with pytest.raises(openai.APIError, match="model inference failed"):
        list(stream)


def test_a_chat_stream_says_when_the_model_broke(ai, emulator):
    emulator.arm({"kind": "answer_error", "model": "talk", "times": 1, "after_tokens": 2})
    stream = ai.chat.completions.create(model="talk", messages=HI, stream=True)
    with pytest.raises(openai.APIError, match="emulated failure"):
        list(stream)


async def test_the_async_client(async_ai):
    answer = await async_ai.chat.completions.create(model="talk", messages=HI)
    assert answer.choices[0].message.content.startswith("word")
    stream = await async_ai.chat.completions.create(model="talk", messages=HI, stream=True)
    text = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(text) == "word " * 6
    async with async_ai.responses.stream(model="talk", input="hi") as events:
        assert (await events.get_final_response()).output_text == "word " * 6
    vectors = await async_ai.embeddings.create(model="vectors", input=["a", "b"])
    assert len(vectors.data) == 2
