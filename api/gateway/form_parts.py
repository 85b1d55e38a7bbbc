"""Where the parts of a multipart form begin and end, and what each is called. Pure.

Strict on purpose: a form that could be read in another way than LocalAI (Go's ``mime/multipart``)
reads it raises ``OddForm``. What nearly all senders write is read; what is only allowed is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_PART_HEAD_BYTES = 8_192

_LINE = b"\r\n"
_TOKEN = rb"[!#$%&'*+\-.0-9A-Z^_`a-z{|}~]+"
_VALUE = rb"(?:" + _TOKEN + rb'|"(?:[^"\\\r\n]|\\[^\r\n])*")'
_PARAMETER = re.compile(rb"[ \t]*;[ \t]*(" + _TOKEN + rb")[ \t]*=[ \t]*(" + _VALUE + rb")")
_KIND = re.compile(rb"[ \t]*(" + _TOKEN + rb"(?:/" + _TOKEN + rb")?)[ \t]*(?=;|$)")
_ESCAPED = re.compile(rb'\\([()<>@,;:\\"/\[\]?=])')
_HEADER = re.compile(rb"(" + _TOKEN + rb"):([^\r\n\x00]*)")
_PLAIN_CODINGS = frozenset({b"7bit", b"8bit", b"binary"})
_MAX_BOUNDARY_BYTES = 70


class OddForm(Exception):
    """It may mean something else to LocalAI than to us, or nothing at all."""


@dataclass(frozen=True, slots=True)
class PartHead:
    """What the head of a part says.

    Attributes
    ----------
    name : str
        The field; empty: it is none.
    is_file : bool
        Whether it has a file name, so that its content is no value.
    """

    name: str
    is_file: bool


_NO_FIELD = PartHead("", is_file=False)


def boundary_of(content_type: bytes) -> bytes | None:
    """The boundary of a multipart form's type; None: it has none that can be relied on."""
    try:
        _, parameters = _parameters(content_type)
    except OddForm:
        return None
    boundary = parameters.get(b"boundary", b"")
    usable = 0 < len(boundary) <= _MAX_BOUNDARY_BYTES and not boundary.endswith(b" ")
    return boundary if usable else None


def read_head(head: bytes) -> PartHead:
    """What the head of a part says; it is without the empty line behind it. Raises OddForm."""
    disposition: bytes | None = None
    is_plain = True
    for line in head.split(_LINE) if head else ():
        header = _HEADER.fullmatch(line)
        if header is None:
            raise OddForm("a line that is no header")
        name, value = header[1].lower(), header[2].strip(b" \t")
        if name == b"content-disposition" and disposition is None:
            disposition = value
        elif name == b"content-transfer-encoding":
            is_plain = value.lower() in _PLAIN_CODINGS
    if disposition is None:
        return _NO_FIELD
    kind, parameters = _parameters(disposition)
    if kind != b"form-data":
        return _NO_FIELD
    field = _field(parameters)
    if not (is_plain or field.is_file):
        raise OddForm("a field in an encoding of its own")
    return field


def _field(parameters: dict[bytes, bytes]) -> PartHead:
    if any(key.startswith(b"name*") for key in parameters):
        raise OddForm("a name in pieces or in an encoding of its own")
    names = [key for key in parameters if key.startswith(b"filename*")]
    if names and (names != [b"filename*"] or not _is_name(parameters[b"filename*"])):
        raise OddForm("a file name in pieces, or empty in an encoding of its own")
    name = parameters.get(b"name", b"").decode("utf-8", "replace")
    return PartHead(name, is_file=bool(names or parameters.get(b"filename")))


def _is_name(encoded: bytes) -> bool:
    """Whether it is ``utf-8''text``, which any reader takes."""
    return (
        re.fullmatch(rb"(?i:utf-8|us-ascii)'[^'%]*'(?:[^'%]|%[0-9a-fA-F]{2})+", encoded) is not None
    )


def _parameters(text: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    kind = _KIND.match(text)
    if kind is None:
        raise OddForm("no kind before the parameters")
    place = kind.end()
    found: dict[bytes, bytes] = {}
    while (parameter := _PARAMETER.match(text, place)) is not None:
        key, value = parameter[1].lower(), parameter[2]
        if key in found:
            raise OddForm("a parameter that stands twice")
        if value.startswith(b'"'):
            value = _ESCAPED.sub(rb"\1", value[1:-1])
        found[key] = value
        place = parameter.end()
    if text[place:].strip(b" \t") not in (b"", b";"):
        raise OddForm("parameters that cannot be read")
    return kind[1].lower(), found
