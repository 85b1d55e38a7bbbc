"""What an import gives: a part of ``headstart.yaml``, and lines about what it could not take."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML

from adapters.settings_problems import printable, shown

MAX_NOTES = 200

MAX_NAME_CHARS = 4_096

YES = True

_NO_NAME = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)?")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, None: 1.0}


@dataclass(slots=True)
class Imported:
    """One file that was read.

    Attributes
    ----------
    kind : str
        What it was taken for.
    values : dict
        Sections of ``headstart.yaml``.
    notes : list of str
        One line for each thing that is not taken, with what takes its place.
    """

    kind: str
    values: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def put(self, *path_and_value: Any) -> None:
        """``put("models", "a", "slots", 4)``; what is said already stays."""
        *path, last, value = path_and_value
        section = self.values
        for name in path:
            section = section.setdefault(name, {})
        section.setdefault(last, value)

    def note(self, text: str) -> None:
        """Tell something, once."""
        line = printable(text)
        if line not in self.notes:
            self.notes.append(line)

    def odd(self, where: str, value: object, takes: str) -> None:
        """Tell that a value is none that could be taken."""
        self.note(f"{where} = {shown(value)}: is not taken: it must be {takes}")

    def takes_name(self, where: str, name: str) -> bool:
        """Whether a model of ours may be called so; where not, that is told."""
        if name.strip() and len(name) <= MAX_NAME_CHARS and not _NO_NAME.search(name):
            return True
        self.note(f"{where}: the name {shown(name)} is not taken: it must be printable text")
        return False


def as_yaml(values: Mapping[str, Any]) -> str:
    """The text of it, in the order of the sections."""
    if not values:
        return ""
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 100
    out = io.StringIO()
    yaml.dump(dict(values), out)
    return out.getvalue()


def bounded(notes: list[str]) -> tuple[str, ...]:
    """At most ``MAX_NOTES`` of them, and how many more there are."""
    rest = len(notes) - MAX_NOTES
    return (*notes[:MAX_NOTES], f"… and {rest} more") if rest > 0 else tuple(notes)


def merged(parts: list[Imported]) -> Imported:
    """Several files as one; what an earlier one says stays."""
    whole = Imported(" and ".join(dict.fromkeys(part.kind for part in parts)))
    for part in parts:
        for path, value in _leaves(part.values, ()):
            whole.put(*path, value)
        for line in part.notes:
            whole.note(line)
    return whole


def seconds_of(value: object) -> float | None:
    """Seconds of a number, or of text such as ``15m``; None: it is neither.

    >>> seconds_of("15m"), seconds_of(600), seconds_of("soon")
    (900.0, 600.0, None)
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        seconds = _float(value)
    else:
        match = _DURATION.fullmatch(str(value).strip())
        seconds = math.nan if match is None else float(match[1]) * _UNIT_S[match[2]]
    return seconds if math.isfinite(seconds) else None


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def truth_of(value: object) -> bool | None:
    """What a switch says, however it is written; None: it is no switch."""
    word = str(value).strip().lower()
    if word in {"true", "1", "yes", "on"}:
        return True
    return False if word in {"false", "0", "no", "off", ""} else None


def _leaves(values: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[list[str], Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, name))
        else:
            yield [*path, name], value
