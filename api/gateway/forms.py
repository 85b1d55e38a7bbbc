"""The model field of a multipart form, found while the form arrives.

Pure: fed with pieces of the body, it says when it knows enough. It keeps the value of one
small field and nothing of the files.
"""

from __future__ import annotations

from enum import Enum, auto

from api.gateway.detect import MAX_MODEL_NAME_CHARS, UNCLEAR, Peek
from api.gateway.form_parts import (
    MAX_PART_HEAD_BYTES,
    OddForm,
    PartHead,
    boundary_of,
    read_head,
)

_MAX_VALUE_BYTES = 4 * MAX_MODEL_NAME_CHARS
_MAX_PARTS = 1_000
"""No form has so many fields before its model: reading on would be work for nothing."""

_END_OF_HEAD = b"\r\n\r\n"
_BEHIND = 2
"""Bytes behind a boundary that say what it is."""


class _At(Enum):
    START = auto()
    HEAD = auto()
    DATA = auto()
    END = auto()


class FormPeek:
    """Looks for the model in a multipart form.

    Parameters
    ----------
    content_type : bytes
        The request's, with the boundary. Without one nothing will be found.
    model_field : str
        The field that names the model. LocalAI takes it in any case where nothing has this one.
    """

    def __init__(self, content_type: bytes, model_field: str = "model") -> None:
        self._model_field = model_field
        self._found: dict[str, bytes] = {}
        self._is_odd = False
        self._at = _At.START
        self._pending = bytearray()
        self._field: str | None = None
        self._value = bytearray()
        self._parts = 0
        boundary = boundary_of(content_type)
        self._mark = b"\r\n--" + (boundary or b"")
        if boundary is None:
            self._give_up()

    @property
    def is_done(self) -> bool:
        """Whether more of the body can add nothing: found, ended, or not to be read."""
        return self._at is _At.END or self._model_field in self._found

    @property
    def peek(self) -> Peek:
        """What was found; unclear as long as the model could still come."""
        if self._is_odd or not self.is_done:
            return UNCLEAR
        fields = [name for name in self._found if name.lower() == self._model_field]
        if self._model_field not in fields and len(fields) > 1:
            return UNCLEAR
        named = self._found.get(fields[0] if len(fields) == 1 else self._model_field, b"")
        model = _text(named)
        stream = self._found.get("stream")
        return Peek(
            model=model or None,
            stream=None if stream is None else stream.strip().lower() in (b"true", b"1"),
            is_clear=model is not None,
        )

    def feed(self, data: bytes) -> None:
        """The next piece of the body; a form that may mean something else ends the search."""
        if self._at is _At.END:
            return
        self._pending += data
        try:
            while self._step():
                pass
        except OddForm:
            self._give_up()

    def _give_up(self) -> None:
        self._is_odd = self._model_field not in self._found
        self._at = _At.END
        self._pending.clear()

    def _step(self) -> bool:
        """Read one part of what is pending; whether there may be more to read."""
        if self._at is _At.START:
            return self._read_start()
        if self._at is _At.HEAD:
            return self._read_head()
        if self._at is _At.DATA:
            return self._read_data()
        self._pending.clear()
        return False

    def _read_start(self) -> bool:
        """The first boundary, which some put behind an empty line."""
        first = self._mark[2:]
        while self._pending.startswith(b"\r\n"):
            del self._pending[:2]
        if len(self._pending) < len(first) + _BEHIND:
            if not first.startswith(bytes(self._pending[: len(first)])) and self._pending != b"\r":
                raise OddForm("something before the first boundary")
            return False
        if not self._pending.startswith(first):
            raise OddForm("something before the first boundary")
        if self._pending.startswith(first + b"--"):
            raise OddForm("no part at all")
        return self._pass_boundary(len(first))

    def _read_head(self) -> bool:
        if self._pending.startswith(b"\r\n"):
            end, size = 0, 2  # no headers at all
        else:
            end, size = self._pending.find(_END_OF_HEAD), len(_END_OF_HEAD)
        if end > MAX_PART_HEAD_BYTES or (end < 0 and len(self._pending) > MAX_PART_HEAD_BYTES):
            raise OddForm("a long head")
        if end < 0:
            return False
        self._begin(read_head(bytes(self._pending[:end])))
        # So that a boundary that follows at once is found like any other.
        self._pending[: end + size] = b"\r\n"
        self._at = _At.DATA
        return True

    def _read_data(self) -> bool:
        place = self._pending.find(self._mark)
        if place < 0:
            self._take(max(0, len(self._pending) - len(self._mark)))
            return False
        end = place + len(self._mark)
        if len(self._pending) < end + _BEHIND:
            self._take(place)
            return False
        if self._goes_on_as_data(end):
            self._take(place + 1)
            return True
        self._take(place)
        self._finish()
        return self._pass_boundary(len(self._mark))

    def _goes_on_as_data(self, end: int) -> bool:
        behind = bytes(self._pending[end : end + _BEHIND])
        return behind[:1] not in b" \t\r\n" and behind != b"--"

    def _pass_boundary(self, size: int) -> bool:
        behind = bytes(self._pending[size : size + _BEHIND])
        del self._pending[: size + _BEHIND]
        if behind == b"--":
            self._at = _At.END
        elif behind == b"\r\n":
            self._at = _At.HEAD
        else:
            raise OddForm("a boundary with something behind it")
        return True

    def _begin(self, head: PartHead) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise OddForm("too many parts")
        watched = head.name.lower() == self._model_field or head.name == "stream"
        self._field = head.name if watched and not head.is_file else None
        self._value.clear()

    def _take(self, size: int) -> None:
        """Let go of so many bytes of a part; of a watched one they are kept, up to a limit."""
        if self._field is not None:
            room = _MAX_VALUE_BYTES + 3 - len(self._value)
            self._value += self._pending[: min(size, max(0, room))]
        del self._pending[:size]

    def _finish(self) -> None:
        if self._field is not None:
            # Two bytes are the line's end before it.
            self._found.setdefault(self._field, bytes(self._value[2:]))


def _text(value: bytes) -> str | None:
    """A name; None: it is none that can be kept."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) <= MAX_MODEL_NAME_CHARS else None
