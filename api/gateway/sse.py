"""What passes in an answer: first content, tokens, how it ended. Sans-I/O.

The observer is shown the bytes that were relayed. It holds no bytes back and changes none,
and sees the same however the bytes are cut into pieces. What it cannot read is unknown
(None), never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from api.gateway.detect import ApiStyle

MAX_EVENT_BYTES = 1_048_576
"""A longer event of a stream is relayed, but not looked at."""

MAX_DOCUMENT_BYTES = 262_144
"""A longer answer that is no stream is relayed, but its usage stays unknown."""

_TOKEN_STYLES = frozenset(
    {ApiStyle.OPENAI, ApiStyle.RESPONSES, ApiStyle.ANTHROPIC, ApiStyle.OLLAMA}
)
_LAST_TYPES = frozenset({"message_stop", "response.completed", "response.incomplete"})
_TEXT_KEYS = ("content", "reasoning_content", "reasoning", "tool_calls", "function_call", "audio")


class Format(StrEnum):
    """How the bytes of an answer are to be read."""

    EVENTS = "events"
    """Server-sent events."""
    LINES = "lines"
    """One JSON document a line."""
    DOCUMENT = "document"
    """One JSON document."""
    OPAQUE = "opaque"


def answer_format(content_type: bytes | None, content_encoding: bytes | None) -> Format:
    """How to read an answer with these headers; an encoded one is not read at all."""
    if content_encoding not in (None, b"", b"identity"):
        return Format.OPAQUE
    bare = (content_type or b"").split(b";", 1)[0].strip().lower()
    if bare == b"text/event-stream":
        return Format.EVENTS
    if bare in (b"application/x-ndjson", b"application/jsonl"):
        return Format.LINES
    if bare == b"application/json":
        return Format.DOCUMENT
    return Format.OPAQUE


class AnswerObserver:
    """Watches one answer.

    Parameters
    ----------
    style : ApiStyle
        Whose API was asked.
    form : Format
        How to read the bytes.

    Attributes
    ----------
    first_content_at_s : float or None
        The time given with the piece that completed the first content. A role, an empty
        text, a ping or a comment is no content; of an answer that is no stream, the first
        byte is.
    model : str or None
        The model that the answer names.
    is_finished : bool
        Whether a stream said that it is complete.
    error : str or None
        What an error inside the answer said.
    skipped : int
        Events and documents that were too long or could not be read.
    """

    __slots__ = (
        "_after_cr",
        "_content_pieces",
        "_data",
        "_document_is_whole",
        "_form",
        "_input_tokens",
        "_is_blank",
        "_output_tokens",
        "_pending",
        "_pending_is_too_long",
        "_style",
        "error",
        "first_content_at_s",
        "is_finished",
        "model",
        "skipped",
    )

    def __init__(self, style: ApiStyle, form: Format) -> None:
        self._style = style
        self._form = form
        self._pending = bytearray()
        self._pending_is_too_long = False
        self._after_cr = False
        self._is_blank = True
        self._data: list[bytes] = []
        self._document_is_whole = True
        self._content_pieces = 0
        self._input_tokens: int | None = None
        self._output_tokens: int | None = None
        self.first_content_at_s: float | None = None
        self.model: str | None = None
        self.is_finished = False
        self.error: str | None = None
        self.skipped = 0

    @property
    def input_tokens(self) -> int | None:
        """What the answer's usage says; a zero there means that it was not counted."""
        return self._input_tokens

    @property
    def output_tokens(self) -> int | None:
        """What the answer's usage says, else the pieces of content in a stream of tokens."""
        if self._output_tokens is not None:
            return self._output_tokens
        return self._content_pieces or None

    @property
    def is_between_events(self) -> bool:
        """Whether an event could be put in here without tearing another one apart."""
        return self._is_blank and not self._pending

    @property
    def is_truncated(self) -> bool:
        """Whether a stream of tokens began and never said that it was complete."""
        streams = self._form in (Format.EVENTS, Format.LINES)
        return streams and self._content_pieces > 0 and not self.is_finished

    def feed(self, data: bytes, now_s: float) -> None:
        """The next bytes that were relayed; ``now_s`` is when."""
        if not data:
            return
        if self._form in (Format.EVENTS, Format.LINES):
            self._feed_lines(data, now_s)
            return
        if self.first_content_at_s is None:
            self.first_content_at_s = now_s
        if self._form is Format.DOCUMENT and self._document_is_whole:
            if len(self._pending) + len(data) > MAX_DOCUMENT_BYTES:
                self._document_is_whole = False
                self._pending.clear()
                self.skipped += 1
            else:
                self._pending += data

    def end(self, now_s: float) -> None:
        """No more bytes come. A last line without its end counts, as it does for callers."""
        if self._form is Format.DOCUMENT:
            if self._document_is_whole and self._pending:
                self._read(bytes(self._pending), None)
        elif self._pending or self._data:
            self._feed_lines(b"\n\n", now_s)

    def _feed_lines(self, data: bytes, now_s: float) -> None:
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
            self._after_cr = False
            if not data:
                return
        self._after_cr = data[-1:] == b"\r"
        lines = data.splitlines(keepends=True)
        for line in lines:
            text = line.rstrip(b"\r\n")
            self._hold(text)
            if len(text) == len(line):
                return
            self._end_line(now_s)

    def _hold(self, text: bytes) -> None:
        if self._pending_is_too_long or len(self._pending) + len(text) > MAX_EVENT_BYTES:
            self._pending_is_too_long = True
            # One byte stays, so that the line does not look blank.
            del self._pending[1:]
            if not self._pending:
                self._pending += text[:1]
            return
        self._pending += text

    def _end_line(self, now_s: float) -> None:
        line, too_long = bytes(self._pending), self._pending_is_too_long
        self._pending.clear()
        self._pending_is_too_long = False
        self._is_blank = not line or self._form is Format.LINES
        if too_long:
            self.skipped += 1
        elif self._form is Format.LINES:
            if line:
                self._read(line, now_s)
        elif not line:
            self._dispatch(now_s)
        elif line.startswith(b"data:"):
            self._keep(line[5:].removeprefix(b" "))

    def _keep(self, data: bytes) -> None:
        if sum(map(len, self._data)) + len(data) > MAX_EVENT_BYTES:
            self.skipped += 1
            return
        self._data.append(data)

    def _dispatch(self, now_s: float) -> None:
        if not self._data:
            return
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data.clear()
        if data == b"[DONE]":
            self.is_finished = True
        elif data:
            self._read(data, now_s)

    def _read(self, document: bytes, now_s: float | None) -> None:
        """Look at one JSON document; ``now_s`` is None for an answer that is no stream."""
        try:
            said: object = msgspec.json.decode(document)
        except (ValueError, RecursionError):
            self.skipped += 1
            said = None
        if isinstance(said, dict):
            self._note_end(said)
            self._note_usage(said)
        if now_s is None:
            return
        if self._style not in _TOKEN_STYLES or (isinstance(said, dict) and _has_content(said)):
            self._content_pieces += self._style in _TOKEN_STYLES
            if self.first_content_at_s is None:
                self.first_content_at_s = now_s

    def _note_end(self, said: Mapping[str, object]) -> None:
        kind = said.get("type")
        if kind in _LAST_TYPES or said.get("done") is True or _finish_reason(said):
            self.is_finished = True
        fault = said.get("error")
        if fault or kind in ("error", "response.failed") or said.get("done_reason") == "error":
            self.error = self.error or _error_text(said)

    def _note_usage(self, said: Mapping[str, object]) -> None:
        for place in _places(said):
            if self.model is None and isinstance(named := place.get("model"), str) and named:
                self.model = named
            usage = place.get("usage")
            counts = usage if isinstance(usage, dict) else place
            for names, is_output in _USAGE_NAMES:
                for name in names:
                    count = counts.get(name)
                    if isinstance(count, int) and not isinstance(count, bool) and count > 0:
                        if is_output:
                            self._output_tokens = count
                        else:
                            self._input_tokens = count


_USAGE_NAMES = (
    (("prompt_tokens", "input_tokens", "prompt_eval_count"), False),
    (("completion_tokens", "output_tokens", "eval_count"), True),
)


def _places(said: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Where APIs put model and usage: at the top, in ``message``, in ``response``."""
    places = [said]
    for name in ("message", "response"):
        inner = said.get(name)
        if isinstance(inner, dict):
            places.append(inner)
    return places


def _has_content(said: Mapping[str, object]) -> bool:
    kind = said.get("type")
    if isinstance(kind, str):
        return kind.endswith((".delta", "_delta")) and kind != "message_delta"
    message = said.get("message")
    if isinstance(message, dict) and _has_text(message):
        return True
    response = said.get("response")
    if isinstance(response, str):
        return response != ""
    choices = said.get("choices")
    return isinstance(choices, list) and any(_choice_has_content(choice) for choice in choices)


def _choice_has_content(choice: object) -> bool:
    if not isinstance(choice, dict):
        return False
    delta = choice.get("delta")
    return bool(choice.get("text")) or (isinstance(delta, dict) and _has_text(delta))


def _has_text(delta: Mapping[str, object]) -> bool:
    return any(delta.get(key) for key in _TEXT_KEYS)


def _finish_reason(said: Mapping[str, object]) -> bool:
    choices = said.get("choices")
    return isinstance(choices, list) and any(
        isinstance(choice, dict) and choice.get("finish_reason") for choice in choices
    )


def _error_text(said: Mapping[str, object]) -> str:
    fault = said.get("error")
    if isinstance(fault, dict):
        fault = fault.get("message")
    for text in (fault, said.get("message")):
        if isinstance(text, str) and text:
            return text[:200]
    return "the stream reported an error"
