"""What differs between two configurations, by key; values are not told, since some are secret."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic import SecretStr

from adapters.settings import Settings
from adapters.settings_keys import known_keys
from adapters.settings_listing import values_of
from adapters.settings_source import KeyPath
from adapters.settings_validation import said

MAX_NAMED = 50

DATA_DIR: KeyPath = ("data_dir",)


@dataclass(frozen=True, slots=True)
class Changes:
    """Keys that differ, as people write them.

    Attributes
    ----------
    applied : tuple of str
        Those that the process takes over as it runs.
    on_restart : tuple of str
        Those that it reads at its start alone.
    """

    applied: tuple[str, ...] = ()
    on_restart: tuple[str, ...] = ()


def changed_keys(before: Settings, after: Settings) -> tuple[KeyPath, ...]:
    """The places of all keys whose values differ, in the order of the reference."""
    old, new = dict(_all_values(before)), dict(_all_values(after))
    places = dict.fromkeys((*old, *new))
    return tuple(place for place in places if old.get(place, _ABSENT) != new.get(place, _ABSENT))


def changes_for(
    before: Settings, after: Settings, *, applied: Iterable[KeyPath], on_restart: Iterable[KeyPath]
) -> Changes:
    """The changes that concern one process.

    ``applied`` and ``on_restart`` are sections or keys (``*``: any name); the longer one that
    fits a key decides. What fits neither is another process's business.
    """
    rules = {**dict.fromkeys(applied, True), **dict.fromkeys(on_restart, False)}
    named: dict[bool, list[str]] = {True: [], False: []}
    for place in changed_keys(before, after):
        fitting = [rule for rule in rules if _fits(rule, place)]
        if fitting:
            named[rules[max(fitting, key=len)]].append(said(place))
    return Changes(_bounded(named[True]), _bounded(named[False]))


_ABSENT = object()


def _all_values(settings: Settings) -> Iterator[tuple[KeyPath, object]]:
    for key in known_keys().values():
        if key.is_section:
            continue
        if key.path == DATA_DIR:
            yield DATA_DIR, str(settings.data_dir)
            continue
        for place, value in values_of(settings, key):
            yield place, _comparable(value)


def _comparable(value: object) -> object:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, tuple):
        return tuple(_comparable(item) for item in value)
    return value


def _fits(rule: KeyPath, place: KeyPath) -> bool:
    return len(rule) <= len(place) and all(
        part in ("*", name) for part, name in zip(rule, place, strict=False)
    )


def _bounded(names: list[str]) -> tuple[str, ...]:
    rest = len(names) - MAX_NAMED
    return tuple(names) if rest <= 0 else (*names[:MAX_NAMED], f"… and {rest} more")
