"""One name of a model for another, in a request's body and in the answer to it. Pure.

Only the bytes of the name change. In a JSON body it is the value of the outermost ``model``, in
a form that of the part of this name. In an answer it is each ``"model": "<name>"`` outside of
strings, at whatever depth an API puts it: inside of a JSON string the quotes are escaped, so that
no text can look like one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise

from api.gateway.detect import Bytes
from api.gateway.form_parts import MAX_PART_HEAD_BYTES, OddForm, boundary_of, read_head
from api.gateway.loose_json import whole_text

# A text without its end goes to the end of all: it is not tried again from each quote in it.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:(")|\\?\Z)|[{}\[\]:,]', re.DOTALL)
_SPACE = rb"[ \t\r\n]{0,8}"
_KEYS = frozenset({"model"})

MAX_FORM_NAME_BYTES = 2_048
"""A longer value of a form is no name of a model."""

_LINE = b"\r\n"


@dataclass(frozen=True, slots=True)
class NamePlace:
    """Where a body names its model: the text between these places.

    ``is_quoted``: it is JSON text in its quotes; else a form's plain value.
    """

    start: int
    end: int
    is_quoted: bool = True

    def read(self, body: Bytes) -> str:
        """The name that stands there; empty where none could be read."""
        text = bytes(body[self.start : self.end]).decode("utf-8", "replace")
        return _read(text) if self.is_quoted else text

    def quoted(self, body: Bytes) -> bytes:
        """The name as JSON text: as it stands there, where it is that already."""
        text = bytes(body[self.start : self.end])
        return text if self.is_quoted else _quoted(self.read(body))


def find_name(body: Bytes) -> NamePlace | None:
    """Where the outermost ``model`` of a JSON body stands.

    None where there is none that is text, or more than one, in whatever case: LocalAI takes the
    last of them.
    """
    depth, key, found = 0, b"", None
    is_key = is_value = False
    for token in _TOKEN.finditer(body):
        mark = token[0][:1]
        if mark == b'"':
            if token[1] is None:
                return None
            if depth == 1 and is_key:
                key = bytes(token[0])
                is_key = False
            elif (
                depth == 1
                and is_value
                and (named := _read(key.decode("utf-8", "replace"))).lower() in _KEYS
            ):
                if found is not None or named not in _KEYS:
                    return None
                found = NamePlace(token.start(), token.end())
        elif mark in (b"{", b"["):
            depth += 1
            is_key = depth == 1 and mark == b"{"
        elif mark in (b"}", b"]"):
            depth -= 1
        elif depth == 1:
            is_value, is_key = mark == b":", mark == b","
    return found


def find_form_name(body: Bytes, content_type: bytes) -> NamePlace | None:
    """Where a multipart form has its model; None: nowhere, or in more than one place.

    None as well where the form could be read in another way than here.
    """
    boundary = boundary_of(content_type)
    if boundary is None:
        return None
    found = None
    marks = list(re.finditer(rb"(?:\A|\r\n)--" + re.escape(boundary) + rb"(?=[ \t\r\n]|--)", body))
    for mark, following in pairwise(marks):
        start = mark.end() + len(_LINE)
        head_end = bytes(body[start : start + MAX_PART_HEAD_BYTES]).find(_LINE * 2)
        if bytes(body[mark.end() : start]) != _LINE or head_end < 0:
            return None
        try:
            head = read_head(bytes(body[start : start + head_end]))
        except OddForm:
            return None
        if head.name.lower() not in _KEYS or head.is_file:
            continue
        value, end = start + head_end + 2 * len(_LINE), following.start()
        if (
            found is not None
            or head.name not in _KEYS
            or not 0 < end - value <= MAX_FORM_NAME_BYTES
        ):
            return None
        found = NamePlace(value, end, is_quoted=False)
    return found


def renamed(body: Bytes, place: NamePlace, name: str) -> tuple[Bytes, bytes, Bytes]:
    """The body with another name, as the three pieces that follow each other."""
    text = _quoted(name) if place.is_quoted else name.encode()
    return body[: place.start], text, body[place.end :]


class NameFilter:
    """Puts one name in the place of another while an answer passes.

    Parameters
    ----------
    served : str
        The name that the answer says.
    asked : bytes
        What it shall say: quoted JSON text, as the caller wrote it.

    Attributes
    ----------
    held : bytes
        What was kept back, since a name may go on with what comes next.
    """

    __slots__ = ("_asked", "_heads", "_pattern", "held")

    def __init__(self, served: str, asked: bytes) -> None:
        names = b"|".join(re.escape(text) for text in _spellings(served))
        self._pattern = re.compile(rb'("model"' + _SPACE + b":" + _SPACE + b")(?:" + names + b")")
        self._heads = tuple(_spellings(served))
        self._asked = asked
        self.held = b""

    @property
    def holds(self) -> bool:
        """Whether anything was kept back."""
        return bool(self.held)

    def feed(self, data: bytes) -> bytes:
        """What may go on now; the beginning of what could be a name is kept for later."""
        text = self._replaced(self.held + data)
        place = self._open_place(text)
        self.held = text[place:]
        return text[:place]

    def end(self) -> bytes:
        """What was kept."""
        held, self.held = self.held, b""
        return held

    def _replaced(self, text: bytes) -> bytes:
        return self._pattern.sub(lambda found: found[1] + self._asked, text)

    def _open_place(self, text: bytes) -> int:
        """Where something begins at the end of ``text`` that may go on to be a name's place."""
        longest = max(map(len, self._heads)) + len(b'"model":') + 16
        start = max(0, len(text) - longest)
        place = text.find(b'"', start)
        while place >= 0:
            if self._may_be(text[place:]):
                return place
            place = text.find(b'"', place + 1)
        return len(text)

    def _may_be(self, tail: bytes) -> bool:
        """Whether ``tail`` is the beginning of a key with our value, and not yet all of it."""
        key = b'"model"'
        if len(tail) < len(key):
            return key.startswith(tail)
        if not tail.startswith(key):
            return False
        before, colon, value = tail[len(key) :].lstrip(b" \t\r\n").partition(b":")
        if before:
            return False
        if not colon:
            return True
        value = value.lstrip(b" \t\r\n")
        return any(len(value) < len(head) and head.startswith(value) for head in self._heads)


def _quoted(name: str) -> bytes:
    return json.dumps(name, ensure_ascii=False).encode()


def _read(quoted: str) -> str:
    try:
        return whole_text(json.loads(quoted))
    except ValueError:
        return ""


def _spellings(name: str) -> list[bytes]:
    """The quoted name as JSON writers put it: as it is, and as Go does, which escapes HTML."""
    plain = json.dumps(name, ensure_ascii=False)
    in_go = plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return list(dict.fromkeys((plain.encode(), in_go.encode())))
