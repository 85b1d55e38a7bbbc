"""What one JSON document of an answer says: tokens, content, end, error. Pure.

A document is a whole answer, an event of a stream or a line of one. Every API puts things
elsewhere; what stands nowhere is None, and a zero counts as not told, since servers that
count nothing say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_INPUT_NAMES = ("prompt_tokens", "input_tokens", "prompt_eval_count", "prompt_n")
_OUTPUT_NAMES = ("completion_tokens", "output_tokens", "eval_count", "predicted_n")
_COUNTS = frozenset(_INPUT_NAMES + _OUTPUT_NAMES)
_NAMES = (
    *((name, False) for name in _INPUT_NAMES),
    *((name, True) for name in _OUTPUT_NAMES),
)
_NESTED = ("message", "response", "x_groq")
_INNER = frozenset(_NESTED)
_HOLDERS = ("usage", "timings")
_TEXT_KEYS = (
    "content",
    "reasoning_content",
    "reasoning",
    "thinking",
    "refusal",
    "tool_calls",
    "function_call",
    "audio",
)
_LAST_TYPES = frozenset({"message_stop", "response.completed", "response.incomplete"})
_FAULT_TYPES = frozenset({"error", "response.failed"})
_MAX_LISTED = 64
_MAX_ERROR_CHARS = 200

Said = Mapping[str, object]


@dataclass(slots=True, kw_only=True)
class Told:
    """Model and tokens that a document names; None: it does not."""

    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


def told_in(said: object) -> Told:
    """Look in each place where an API puts model and usage.

    That is ``usage`` (OpenAI, Anthropic, rerankers) or ``timings`` (llama.cpp) at the top, in
    ``message`` (Anthropic's first event), ``response`` (Responses) and ``x_groq``; Ollama's
    counts stand at the top by themselves. Of a list the last entry that tells something counts.
    """
    model: str | None = None
    counts: dict[bool, int] = {}
    if isinstance(said, dict) and _INNER.isdisjoint(said):
        # As in most answers and most pieces of most streams.
        named = said.get("model")
        _note_counts(said, counts)
        for name in _HOLDERS:
            held = said.get(name)
            if isinstance(held, dict):
                _note_counts(held, counts)
        return Told(
            model=named if isinstance(named, str) and named else None,
            input_tokens=counts.get(False),
            output_tokens=counts.get(True),
        )
    entries = said[-_MAX_LISTED:] if isinstance(said, list) else [said]
    for entry in entries:
        for place in _places(entry):
            named = place.get("model")
            if model is None and isinstance(named, str) and named:
                model = named
            for held in (place, *(place.get(name) for name in _HOLDERS)):
                if isinstance(held, dict):
                    _note_counts(held, counts)
    return Told(model=model, input_tokens=counts.get(False), output_tokens=counts.get(True))


def has_content(said: Said) -> bool:
    """Whether it holds a piece of what was asked for; thinking aloud is one, a role is none."""
    kind = said.get("type")
    if isinstance(kind, str):
        is_delta = kind.endswith((".delta", "_delta")) and kind != "message_delta"
        return is_delta and _delta_has_text(said.get("delta"))
    message = said.get("message")
    if isinstance(message, dict) and _has_text(message):
        return True
    if said.get("response") or said.get("thinking"):
        return isinstance(said.get("response") or said.get("thinking"), str)
    choices = said.get("choices")
    return isinstance(choices, list) and any(_choice_has_content(choice) for choice in choices)


def is_last(said: Said) -> bool:
    """Whether a stream says with it that its answer is complete."""
    if _type_of(said) in _LAST_TYPES or said.get("done") is True:
        return True
    choices = said.get("choices")
    if isinstance(choices, list):
        for choice in choices:
            if isinstance(choice, dict) and choice.get("finish_reason"):
                return True
    return False


def error_in(said: Said) -> str | None:
    """What an error says; None: there is none."""
    fault = said.get("error")
    is_fault = fault or _type_of(said) in _FAULT_TYPES or said.get("done_reason") == "error"
    if not is_fault:
        return None
    inner = said.get("response")
    if not fault and isinstance(inner, dict):
        fault = inner.get("error")
    if isinstance(fault, dict):
        fault = fault.get("message")
    for text in (fault, said.get("message")):
        if isinstance(text, str) and text:
            return text[:_MAX_ERROR_CHARS]
    return "the stream reported an error"


def _type_of(said: Said) -> str:
    kind = said.get("type")
    return kind if isinstance(kind, str) else ""


def _places(said: object) -> list[Said]:
    if not isinstance(said, dict):
        return []
    inner = (said.get(name) for name in _NESTED)
    return [said, *(place for place in inner if isinstance(place, dict))]


def _note_counts(held: Said, counts: dict[bool, int]) -> None:
    if _COUNTS.isdisjoint(held):
        return  # as above: eight look-ups less
    for name, is_output in _NAMES:
        if name in held:
            count = held[name]
            if isinstance(count, int) and not isinstance(count, bool) and count > 0:
                counts[is_output] = count


def _choice_has_content(choice: object) -> bool:
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta")
    return bool(choice.get("text")) or (isinstance(delta, dict) and _has_text(delta))


def _delta_has_text(delta: object) -> bool:
    """Of Anthropic's and Responses' deltas: text, thinking, part of a tool's arguments."""
    if isinstance(delta, dict):
        return any(value for name, value in delta.items() if name != "type")
    return bool(delta)


def _has_text(delta: Said) -> bool:
    return any(delta.get(key) for key in _TEXT_KEYS)
