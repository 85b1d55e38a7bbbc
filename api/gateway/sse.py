"""What passes in an answer: first content, tokens, how it ended. Sans-I/O.

The observer is shown the bytes that were relayed. It holds no bytes back and changes none,
and sees the same however the bytes are cut into pieces. What it cannot read is unknown
(None), never zero.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from api.gateway.detect import ApiStyle, Headers
from api.gateway.documents import DocumentScan
from api.gateway.headers import content_encoding, content_type
from api.gateway.inflating import INFLATED, Inflater
from api.gateway.usage import error_in, has_content, is_last, told_in

MAX_EVENT_BYTES = 1_048_576
"""A longer event of a stream is relayed, but not looked at."""

_TOKEN_STYLES = frozenset(
    {ApiStyle.OPENAI, ApiStyle.RESPONSES, ApiStyle.ANTHROPIC, ApiStyle.OLLAMA}
)
_BOM = b"\xef\xbb\xbf"


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
    """How to read an answer with these headers; some encodings are not read at all."""
    if content_encoding not in (None, b"", b"identity") and content_encoding not in INFLATED:
        return Format.OPAQUE
    bare = (content_type or b"").split(b";", 1)[0].strip().lower()
    if bare == b"text/event-stream":
        return Format.EVENTS
    if bare in (b"application/x-ndjson", b"application/jsonl"):
        return Format.LINES
    if bare == b"application/json":
        return Format.DOCUMENT
    return Format.OPAQUE


def observe(style: ApiStyle, headers: Headers) -> AnswerObserver:
    """Whoever watches an answer with these headers."""
    headers = tuple(headers)
    encoding = content_encoding(headers)
    return AnswerObserver(style, answer_format(content_type(headers), encoding), encoding)


class AnswerObserver:
    """Watches one answer.

    Parameters
    ----------
    style : ApiStyle
        Whose API was asked.
    form : Format
        How to read the bytes.
    encoding : bytes or None
        How they are encoded.

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
        "_data_bytes",
        "_document",
        "_form",
        "_inflater",
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

    def __init__(self, style: ApiStyle, form: Format, encoding: bytes | None = None) -> None:
        self._style = style
        self._form = form
        self._inflater = Inflater() if encoding in INFLATED else None
        self._document = DocumentScan() if form is Format.DOCUMENT else None
        self._pending = bytearray()
        self._pending_is_too_long = False
        self._after_cr = False
        self._is_blank = True
        self._data: list[bytes] = []
        self._data_bytes = 0
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
        """What the answer's usage says, else the pieces of content in a stream of tokens.

        Before its end an answer tells the tokens up to then, if at all: the larger figure
        is the truer one.
        """
        if self.tokens_counted:
            return self._content_pieces
        return self._output_tokens

    @property
    def tokens_counted(self) -> bool:
        """Whether ``output_tokens`` are pieces that were counted here."""
        told = self._output_tokens
        if told is None or not self.is_finished:
            return self._content_pieces > (told or 0)
        return False

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
        if self._inflater is None:
            self._take(data, now_s)
        else:
            for piece in self._inflater.feed(data):
                self._take(piece, now_s)

    def end(self, now_s: float) -> None:
        """No more bytes come. A last line without its end counts, as it does for callers."""
        if self._document is not None:
            self._read_document(self._document.end())
        elif self._pending or self._data_bytes:
            self._feed_lines(b"\n\n", now_s)

    def _take(self, data: bytes, now_s: float) -> None:
        if self._form in (Format.EVENTS, Format.LINES):
            self._feed_lines(data, now_s)
            return
        if self.first_content_at_s is None:
            self.first_content_at_s = now_s
        if self._document is not None:
            self._document.feed(data)

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
        elif line.startswith(_BOM + b"data:"):
            self._keep(line[8:].removeprefix(b" "))

    def _keep(self, data: bytes) -> None:
        self._data_bytes += len(data) + 1
        if self._data_bytes > MAX_EVENT_BYTES:
            self._data.clear()
            return
        self._data.append(data)

    def _dispatch(self, now_s: float) -> None:
        if self._data_bytes > MAX_EVENT_BYTES:
            self.skipped += 1
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data.clear()
        self._data_bytes = 0
        if data == b"[DONE]":
            self.is_finished = True
        elif data:
            self._read(data, now_s)

    def _read(self, document: bytes, now_s: float) -> None:
        """Look at one event or line."""
        try:
            said: object = msgspec.json.decode(document)
        except (ValueError, RecursionError):
            self.skipped += 1
            said = None
        self._note(said)
        if self._style not in _TOKEN_STYLES or (isinstance(said, dict) and has_content(said)):
            self._content_pieces += self._style in _TOKEN_STYLES
            if self.first_content_at_s is None:
                self.first_content_at_s = now_s

    def _read_document(self, said: object) -> None:
        if said is None:
            self.skipped += self.first_content_at_s is not None
        self._note(said)

    def _note(self, said: object) -> None:
        if isinstance(said, dict):
            self.is_finished = self.is_finished or is_last(said)
            self.error = self.error or error_in(said)
        told = told_in(said)
        self.model = self.model or told.model
        if told.input_tokens is not None:
            self._input_tokens = told.input_tokens
        if told.output_tokens is not None:
            self._output_tokens = told.output_tokens
