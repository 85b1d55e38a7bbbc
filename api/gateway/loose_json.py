"""JSON bodies as LocalAI reads them, where they are not as plain as nearly all are. Pure.

LocalAI reads with Go's decoder: a field's name in any case, the last of several, null as nothing
said, only the first document, and text that is no UTF-8 with replacements. This is slow, and only
asked where the fast reader could have seen something else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product

MAX_BYTES = 1024**2
"""A longer body that is odd is not read again."""

_SPACE = " \t\r\n"

Pairs = list[tuple[str, object]]


class Unreadable(Exception):
    """LocalAI would refuse it as well, or might see in it what is not seen here."""


def spellings(name: str) -> tuple[str, ...]:
    """Every way to write a field's name in large and small letters."""
    return tuple(map("".join, product(*(sorted({c, c.upper()}, reverse=True) for c in name))))


def last_said(body: bytes, names: Iterable[str]) -> dict[str, object]:
    """The values of these fields (in small letters) in the outermost object, as Go takes them.

    Raises Unreadable. Text with half a surrogate has replacements, as Go puts them.
    """
    if len(body) > MAX_BYTES:
        raise Unreadable
    text = body.decode("utf-8", "replace").lstrip(_SPACE)
    try:
        said, _ = _DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable from error
    if said is None:
        return {}
    if not isinstance(said, _Object):
        raise Unreadable
    wanted = frozenset(names)
    found: dict[str, object] = {}
    for name, value in said.pairs:
        folded = name.lower()
        if folded in wanted and value is not None:
            found[folded] = whole_text(value) if isinstance(value, str) else value
    return found


class _Object:
    """The members of an object in their order; doubled ones are all there."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs


def _number(_text: str) -> float:
    """Of no interest, and dear where it is long."""
    return 0.0


def _no_number(word: str) -> object:
    raise ValueError(f"{word} is no JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Object, parse_int=_number, parse_float=_number, parse_constant=_no_number
)


def whole_text(text: str) -> str:
    """The text with a replacement for each half surrogate, as Go reads it."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
