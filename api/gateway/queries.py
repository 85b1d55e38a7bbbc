"""Fields of a query or of a form in the same way of writing, as LocalAI reads them. Pure."""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"%([0-9a-fA-F]{2})")


def first_values(query: bytes) -> dict[str, str]:
    """Each field with its first value, as Go reads them.

    A pair with a semicolon or with a broken escape is none; what is no UTF-8 is replaced.
    """
    found: dict[str, str] = {}
    for pair in query.split(b"&"):
        if not pair or b";" in pair:
            continue
        name, _, value = pair.partition(b"=")
        key, said = _unescaped(name), _unescaped(value)
        if key is not None and said is not None:
            found.setdefault(key, said)
    return found


def _unescaped(text: bytes) -> str | None:
    if b"%" in text:
        if text.count(b"%") != len(_ESCAPE.findall(text)):
            return None
        text = _ESCAPE.sub(lambda found: b"%c" % int(found[1], 16), text.replace(b"+", b" "))
    else:
        text = text.replace(b"+", b" ")
    return text.decode("utf-8", "replace")
