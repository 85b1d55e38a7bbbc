"""Every value in force, and where it comes from; secrets as ``***``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

from pydantic import SecretStr

from adapters.settings import Settings
from adapters.settings_keys import ANY_NAME, Key, known_keys
from adapters.settings_problems import HIDDEN
from adapters.settings_source import KeyPath
from adapters.settings_types import Section
from adapters.settings_validation import said

DEFAULT = "default"

_USER_OF_URL = re.compile(r"(?<=://)[^/@]*(?=@)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One key with its value as JSON, and its origin: "default", "file:line" or "env NAME"."""

    key: str
    value: Any
    origin: str


def entries(settings: Settings) -> tuple[Entry, ...]:
    """All keys in the order of the reference, those of each model and backend included."""
    return tuple(
        Entry(key=said(place), value=value, origin=_origin(settings, place))
        for key in known_keys().values()
        if not key.is_section
        for place, value in _values(settings, key)
    )


def values_of(settings: Settings, key: Key) -> Iterator[tuple[KeyPath, Any]]:
    """The values of one key, as they are, at each place where it stands."""
    found: list[tuple[KeyPath, Any]] = [((), settings.document)]
    for name in key.path:
        found = [
            ((*place, child), value)
            for place, parent in found
            for child, value in _children(parent, name)
        ]
    yield from found


def _values(settings: Settings, key: Key) -> Iterator[tuple[KeyPath, Any]]:
    if key.path == ("data_dir",):
        yield key.path, str(settings.data_dir)
        return
    for place, value in values_of(settings, key):
        yield place, _public(value)


def _children(parent: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(parent, Section):
        yield name, getattr(parent, f"{name}_" if iskeyword(name) else name)
    elif isinstance(parent, tuple):
        yield from ((str(index), value) for index, value in enumerate(parent))
    else:
        assert name == ANY_NAME
        yield from parent.items()


def _public(value: Any) -> Any:
    if isinstance(value, SecretStr):
        text = value.get_secret_value()
        return _USER_OF_URL.sub(HIDDEN, text) if "://" in text else HIDDEN
    if isinstance(value, tuple):
        return [_public(item) for item in value]
    return value


def _origin(settings: Settings, place: KeyPath) -> str:
    said_by = settings.source.origins.get(place, DEFAULT)
    return said_by if said_by == DEFAULT or ":" in said_by else f"env {said_by}"
