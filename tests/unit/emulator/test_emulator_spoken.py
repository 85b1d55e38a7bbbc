from __future__ import annotations

import json

import pytest

from emulator.schemas import sample
from emulator.spoken import Tool, flat_tools, functions_of, schema_of_format, speak

ONE = Tool(name="one", schema={"properties": {"a": {"type": "integer", "minimum": 3}}})
TWO = Tool(name="two", schema={})


def test_words_where_nothing_else_is_asked_for():
    spoken = speak()
    assert spoken.whole(3) == "word word word"
    assert [spoken.piece(number, 3) for number in range(3)] == ["word "] * 3


def test_a_tool_is_called_once():
    spoken = speak(tools=[ONE, TWO])
    assert spoken.call is not None
    assert (spoken.call.name, spoken.call.arguments) == ("one", '{"a":3}')
    assert spoken.whole(5) == spoken.piece(0, 5) == ""
    assert speak(tools=[ONE], has_result=True).call is None


@pytest.mark.parametrize(
    ("wanted", "called"), [("two", "two"), ("none-such", "one"), (None, "one")]
)
def test_the_wanted_tool_is_called(wanted, called):
    call = speak(tools=[ONE, TWO], wanted=wanted).call
    assert call is not None
    assert call.name == called


def test_pieces_of_json_are_the_whole_of_it_however_many_there_are():
    spoken = speak(schema={"type": "object", "properties": {"name": {"type": "string"}}})
    for tokens in (1, 3, 7, 100):
        pieces = [spoken.piece(number, tokens) for number in range(tokens)]
        assert json.loads("".join(pieces)) == {"name": "word"}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "boolean"}, True),
        ({"type": "number"}, 1),
        ({"const": 7}, 7),
        ({"enum": ["a", "b"]}, "a"),
        ({"type": "null"}, None),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "word"),
        ({"type": "array"}, ["word"]),
        ({"type": "array", "items": {"type": "integer"}}, [1]),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "string"}}}, "word"),
        ({"$ref": "#/$defs/none"}, None),
        ({}, {}),
    ],
)
def test_a_value_for_each_schema(schema, value):
    assert sample(schema) == value


def test_a_schema_that_refers_to_itself_ends():
    schema = {"type": "object", "properties": {"child": {"$ref": "#"}}}
    text = json.dumps(sample(schema))
    assert "null" in text


def test_tools_and_formats_of_each_dialect():
    function = {"name": "f", "parameters": {"properties": {}}}
    assert [tool.name for tool in functions_of([{"type": "function", "function": function}])] == [
        "f"
    ]
    assert [tool.name for tool in flat_tools([function, {"type": "web"}, 1], "parameters")] == ["f"]
    assert functions_of(None) == flat_tools("x", "parameters") == []
    assert schema_of_format({"type": "text"}) is None
    assert schema_of_format(None) is None
    assert schema_of_format({"type": "json_schema", "json_schema": {"schema": {"a": 1}}}) == {
        "a": 1
    }
    assert schema_of_format({"type": "json_schema", "schema": {"a": 1}}) == {"a": 1}
    assert schema_of_format({"type": "json_schema", "json_schema": 3}) == {}
