"""The model field of a multipart form, found while the form arrives.

Pure: fed with pieces of the body, it says when it knows enough. It keeps the value of one
small field and nothing of the files.
"""

from __future__ import annotations

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from api.gateway.detect import MAX_MODEL_NAME_CHARS, Peek

_MAX_VALUE_BYTES = 4 * MAX_MODEL_NAME_CHARS
_MAX_HEADER_BYTES = 8_192
_MAX_PARTS = 1_000
"""No form has so many fields before its model: reading on would be work for nothing."""
_WATCHED = frozenset({"model", "model_id", "stream"})


class FormPeek:
    """Looks for the model in a multipart form.

    Parameters
    ----------
    content_type : bytes
        The request's, with the boundary. Without one nothing will be found.
    model_field : str
        The field that names the model.
    """

    def __init__(self, content_type: bytes, model_field: str = "model") -> None:
        self._model_field = model_field
        self._found: dict[str, str] = {}
        self._header_name = bytearray()
        self._header_value = bytearray()
        self._field: str | None = None
        self._value = bytearray()
        self._ended = False
        self._parts = 0
        _, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        self._parser = self._make_parser(boundary) if boundary else None

    @property
    def is_done(self) -> bool:
        """Whether more of the body can add nothing: found, ended, or not to be read."""
        return self._parser is None or self._ended or self._model_field in self._found

    @property
    def peek(self) -> Peek:
        """What was found so far."""
        stream = self._found.get("stream")
        return Peek(
            model=self._found.get(self._model_field) or None,
            stream=None if stream is None else stream.strip().lower() in ("true", "1"),
        )

    def feed(self, data: bytes) -> None:
        """The next piece of the body; a form that cannot be read ends the search."""
        if self._parser is None:
            return
        try:
            self._parser.write(data)
        except FormParserError:
            self._parser = None

    def _make_parser(self, boundary: bytes) -> MultipartParser | None:
        try:
            return MultipartParser(
                boundary,
                {
                    "on_part_begin": self._on_part_begin,
                    "on_header_field": self._on_header_field,
                    "on_header_value": self._on_header_value,
                    "on_header_end": self._on_header_end,
                    "on_part_data": self._on_part_data,
                    "on_part_end": self._on_part_end,
                    "on_end": self._on_end,
                },
            )
        except FormParserError:
            return None

    def _on_part_begin(self) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise FormParserError("too many parts")
        self._field = None
        self._value.clear()

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        _extend(self._header_name, data[start:end], _MAX_HEADER_BYTES)

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        _extend(self._header_value, data[start:end], _MAX_HEADER_BYTES)

    def _on_header_end(self) -> None:
        if bytes(self._header_name).lower() == b"content-disposition":
            _, options = parse_options_header(bytes(self._header_value))
            name = options.get(b"name", b"").decode("utf-8", "replace")
            # A part with a file name is a file, whatever its field is called.
            self._field = name if name in _WATCHED and b"filename" not in options else None
        self._header_name.clear()
        self._header_value.clear()

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._field is not None:
            _extend(self._value, data[start:end], _MAX_VALUE_BYTES + 1)

    def _on_part_end(self) -> None:
        if self._field is None or self._field in self._found or len(self._value) > _MAX_VALUE_BYTES:
            return
        try:
            text = self._value.decode()
        except UnicodeDecodeError:
            return
        if len(text) <= MAX_MODEL_NAME_CHARS:
            self._found[self._field] = text

    def _on_end(self) -> None:
        self._ended = True


def _extend(target: bytearray, data: bytes, limit: int) -> None:
    room = limit - len(target)
    if room > 0:
        target += data[:room]
