"""A slow reader of requests that takes the model as LocalAI does, written from Go's rules alone.

``REFUSED``: LocalAI answers with an error, so that whatever else is thought of it does no harm.
"""

from __future__ import annotations

import re

REFUSED = object()

_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORD = re.compile(r"true|false|null")
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
MAX_DEPTH = 10_000


class _Bad(Exception):
    pass


def json_model(body: bytes, field: str) -> object:
    """The text that LocalAI puts into a field; empty: none; REFUSED."""
    if not body:
        return ""
    try:
        return _document(body.decode("utf-8", "replace"), field)
    except _Bad:
        return REFUSED


def _document(text: str, field: str) -> object:
    place = _space(text, 0)
    if text[place : place + 1] != "{":
        _skip(text, place)
        return "" if text.startswith("null", place) else REFUSED
    found, refused = "", False
    place = _space(text, place + 1)
    if text[place : place + 1] == "}":
        return found
    while True:
        key, place = _string(text, place)
        place = _expect(text, _space(text, place), ":")
        start = _space(text, place)
        place = _skip(text, start)
        if key.lower() == field and not text.startswith("null", start):
            if text[start] != '"':
                refused = True
            else:
                found, _ = _string(text, start)
        place = _space(text, place)
        if text[place : place + 1] == "}":
            return REFUSED if refused else found
        place = _space(text, _expect(text, place, ","))


def _space(text: str, place: int) -> int:
    while text[place : place + 1] in (" ", "\t", "\r", "\n"):
        place += 1
    return place


def _expect(text: str, place: int, mark: str) -> int:
    if text[place : place + 1] != mark:
        raise _Bad
    return place + 1


def _string(text: str, place: int) -> tuple[str, int]:
    match = _STRING.match(text, place)
    if match is None:
        raise _Bad
    said = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", _unescape, match[0][1:-1])
    return said.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), match.end()


def _unescape(match: re.Match[str]) -> str:
    mark = match[1]
    return chr(int(mark[1:], 16)) if mark[0] == "u" else _SHORT.get(mark, mark)


def _skip(text: str, place: int) -> int:
    """Where the value that begins here ends; with a stack, since Go reads deep ones."""
    stack: list[str] = []
    while True:
        mark = text[place : place + 1]
        if mark in ("{", "["):
            stack.append(mark)
            if len(stack) >= MAX_DEPTH:
                raise _Bad
            place = _space(text, place + 1)
            if text[place : place + 1] != {"{": "}", "[": "]"}[mark]:
                if mark == "{":
                    place = _key(text, place)
                continue
            stack.pop()
            place += 1
        else:
            place = _scalar(text, place)
        while stack:
            place = _space(text, place)
            if text[place : place + 1] == ",":
                place = _space(text, place + 1)
                if stack[-1] == "{":
                    place = _key(text, place)
                break
            place = _expect(text, place, {"{": "}", "[": "]"}[stack.pop()])
        else:
            return place


def _scalar(text: str, place: int) -> int:
    if text[place : place + 1] == '"':
        return _string(text, place)[1]
    match = _NUMBER.match(text, place) or _WORD.match(text, place)
    if match is None:
        raise _Bad
    return match.end()


def _key(text: str, place: int) -> int:
    _, place = _string(text, place)
    return _space(text, _expect(text, _space(text, place), ":"))


def query_pairs(query: bytes) -> tuple[list[tuple[str, str]], bool]:
    """Each pair that Go takes, and whether it takes offence at another."""
    found, is_bad = [], False
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        if b";" in pair or re.search(rb"%(?![0-9a-fA-F]{2})", pair):
            is_bad = True
        elif pair:
            found.append((_plain(name), _plain(value)))
    return found, is_bad


def _plain(text: bytes) -> str:
    parts = re.split(rb"%([0-9a-fA-F]{2})", text.replace(b"+", b" "))
    out = b"".join(
        bytes([int(part, 16)]) if place % 2 else part for place, part in enumerate(parts)
    )
    return out.decode("utf-8", "replace")


def query_model(query: bytes) -> str:
    """The first ``model`` of a query."""
    return next((value for name, value in query_pairs(query)[0] if name == "model"), "")


def form_model(body: bytes) -> object:
    """The model of a form in a query's way of writing; a set: any of them, by chance."""
    pairs, is_bad = query_pairs(body)
    if is_bad:
        return REFUSED
    exact = [value for name, value in pairs if name == "model"]
    if exact:
        return exact[0]
    folded: dict[str, str] = {}
    for name, value in pairs:
        if name.lower() == "model":
            folded.setdefault(name, value)
    return set(folded.values()) if len(folded) > 1 else next(iter(folded.values()), "")
