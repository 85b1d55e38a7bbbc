"""Everything wrong with a configuration, gathered so that it is reported at once."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable

from contracts.errors import Invalid

MAX_PROBLEMS = 20
SHOWN_CHARACTERS = 60
HIDDEN = "***"

_PLACE = re.compile(r"[^:]*:(\d+): ")


class Problems:
    """Lines that each say where, what and what is allowed; at most ``MAX_PROBLEMS`` are kept."""

    __slots__ = ("_left_out", "_lines")

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._left_out = 0

    def add(self, where: str, text: str) -> None:
        """Keep one line; beyond the bound it is only counted."""
        if len(self._lines) < MAX_PROBLEMS:
            self._lines.append(printable(f"{where}: {text}"))
        else:
            self._left_out += 1

    @property
    def count(self) -> int:
        """How many were found, those beyond the bound included."""
        return len(self._lines) + self._left_out

    @property
    def lines(self) -> tuple[str, ...]:
        """Those that are kept, in the order in which they were found."""
        return tuple(self._lines)

    @property
    def is_full(self) -> bool:
        """Whether further lines are only counted."""
        return len(self._lines) >= MAX_PROBLEMS

    def leave_out(self, count: int) -> None:
        """Count lines that need not be written, as the bound is reached."""
        self._left_out += count

    def add_all(self, error: Invalid) -> None:
        """Keep the lines of an error that was raised."""
        for line in str(error).splitlines():
            where, _, text = line.partition(": ")
            self.add(where, text)

    def raise_if_any(self) -> None:
        """Raise Invalid with all lines, or do nothing when there are none."""
        if not self._lines:
            return
        rest = [f"… and {self._left_out} more"] if self._left_out else []
        raise Invalid("\n".join([*sorted(self._lines, key=_line_number), *rest]))


def shown(value: object, *, secret: bool = False) -> str:
    """A value as an error or a table shows it: short, in one line, secrets as ``***``."""
    if value is None:
        return "null"
    if secret:
        return HIDDEN
    if isinstance(value, dict):
        return "a mapping" if value else "{}"
    if isinstance(value, list | tuple):
        text = ", ".join(shown(item) for item in value[:SHOWN_CHARACTERS])
        return printable(_short(f"[{text}]"))
    if isinstance(value, str):
        return printable(json.dumps(_short(value), ensure_ascii=False))
    return printable(_short(json.dumps(value)))


def printable(text: str) -> str:
    """The text with what a terminal or a log could stumble over written as escapes."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` was probably meant to be; None when none is near."""
    names = {candidate.lower().replace("-", "_"): candidate for candidate in known}
    asked = name.lower().replace("-", "_").strip()[:200]
    found = difflib.get_close_matches(asked, names, n=1, cutoff=0.7)
    return names[found[0]] if found else None


def _line_number(problem: str) -> int:
    match = _PLACE.match(problem)
    return int(match[1]) if match is not None else 0


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"
