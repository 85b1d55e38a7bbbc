"""A slow reader of event streams, written from the specification and nothing of ours.

It has all bytes at once. What it finds, the gateway's observer has to find in any pieces.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

LINE = re.compile(rb"\r\n|\r|\n")
COUNTS_IN = ("prompt_tokens", "input_tokens", "prompt_eval_count", "prompt_n")
COUNTS_OUT = ("completion_tokens", "output_tokens", "eval_count", "predicted_n")
LONGEST = 1_048_576


@dataclass
class Found:
    """What a stream says."""

    documents: list[Any] = field(default_factory=list)
    pieces: int = 0
    model: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    done: bool = False


def events_of(stream: bytes) -> list[bytes]:
    """The data of each event; one without its empty line counts at the end of a stream."""
    found: list[bytes] = []
    data: list[bytes] = []
    for line in LINE.split(stream.removeprefix(b"\xef\xbb\xbf")):
        if not line:
            if data:
                found.append(b"\n".join(data))
            data = []
        elif line.startswith(b"data:"):
            text = line[5:]
            data.append(text[1:] if text.startswith(b" ") else text)
    if data:
        found.append(b"\n".join(data))
    return [text for text in found if text]


def lines_of(stream: bytes) -> list[bytes]:
    """The lines that are not empty."""
    return [line for line in LINE.split(stream) if line]


def read(pieces: list[bytes], *, plain: bool) -> Found:
    """Read OpenAI's, Anthropic's and Ollama's pieces; ``plain``: they are lines, no events."""
    found = Found()
    for piece in pieces:
        if piece == b"[DONE]" and not plain:
            found.done = True
            continue
        try:
            said = json.loads(piece.decode(), parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue
        found.documents.append(said)
        if isinstance(said, dict):
            _look(said, found)
    return found


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _look(said: dict[str, Any], found: Found) -> None:
    for place in (said, said.get("message"), said.get("response"), said.get("x_groq")):
        if not isinstance(place, dict):
            continue
        if found.model is None and isinstance(place.get("model"), str) and place["model"]:
            found.model = place["model"]
        for held in (place, place.get("usage"), place.get("timings")):
            if isinstance(held, dict):
                found.tokens_in = _count(held, COUNTS_IN, found.tokens_in)
                found.tokens_out = _count(held, COUNTS_OUT, found.tokens_out)


def _count(held: dict[str, Any], names: tuple[str, ...], before: int | None) -> int | None:
    for name in names:
        value = held.get(name)
        if type(value) is int and value > 0:
            before = value
    return before
