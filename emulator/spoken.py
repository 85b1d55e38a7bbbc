"""What a chat says: words, JSON that a schema asks for, or a call of a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator.http import json_text
from emulator.schemas import sample

WORD = "word "


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the caller offers."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a tool; ``arguments`` is JSON as text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """An answer. Without ``text`` and ``call`` it is words, as many as there are tokens."""

    text: str | None = None
    call: Call | None = None

    def whole(self, tokens: int) -> str:
        """All of its text; '' for a call."""
        if self.call is not None:
            return ""
        return (WORD * tokens).rstrip() if self.text is None else self.text

    def piece(self, number: int, tokens: int) -> str:
        """What token ``number`` of ``tokens`` says."""
        if self.call is not None:
            return ""
        if self.text is None:
            return WORD
        length = len(self.text)
        return self.text[number * length // tokens : (number + 1) * length // tokens]


WORDS = Spoken()


def speak(
    *,
    tools: Sequence[Tool] = (),
    wanted: str | None = None,
    schema: Mapping[str, Any] | None = None,
    has_result: bool = False,
) -> Spoken:
    """The answer of a model that keeps to what it is asked for.

    A tool is called once: when its result stands in the conversation, words follow.

    Parameters
    ----------
    wanted : str, optional
        The tool that must be called; else it is the first one.
    schema : mapping, optional
        JSON schema of the answer.
    has_result : bool
        Whether the conversation ends with the result of a call.
    """
    if tools and not has_result:
        tool = next((tool for tool in tools if tool.name == wanted), tools[0])
        arguments = sample({"type": "object", **tool.schema})
        return Spoken(call=Call(name=tool.name, arguments=json_text(arguments)))
    if schema is not None:
        return Spoken(text=json_text(sample(schema)))
    return WORDS


def functions_of(listed: object) -> list[Tool]:
    """The tools of a list as OpenAI's chat has them."""
    entries = listed if isinstance(listed, list) else []
    inner = [entry.get("function") for entry in entries if isinstance(entry, Mapping)]
    return [_tool(entry, "parameters") for entry in inner if isinstance(entry, Mapping)]


def flat_tools(listed: object, schema_key: str) -> list[Tool]:
    """The tools of a list whose entries carry name and schema themselves."""
    entries = listed if isinstance(listed, list) else []
    return [
        _tool(entry, schema_key)
        for entry in entries
        if isinstance(entry, Mapping) and entry.get("name")
    ]


def schema_of_format(response_format: object) -> Mapping[str, Any] | None:
    """The schema of OpenAI's ``response_format``; None where text is wanted."""
    if not isinstance(response_format, Mapping):
        return None
    kind = response_format.get("type")
    if kind == "json_object":
        return {"type": "object", "properties": {"answer": {"type": "string"}}}
    if kind != "json_schema":
        return None
    # Responses has the schema beside the type, chat has it one level below.
    named = response_format.get("json_schema", response_format)
    schema = named.get("schema") if isinstance(named, Mapping) else None
    return schema if isinstance(schema, Mapping) else {}


def _tool(entry: Mapping[str, Any], schema_key: str) -> Tool:
    schema = entry.get(schema_key)
    return Tool(
        name=str(entry.get("name", "")), schema=schema if isinstance(schema, Mapping) else {}
    )
