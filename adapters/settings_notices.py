"""What to know about a configuration that is right: keys without effect, and what is moot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from adapters.settings_environment import PRELOAD_VARIABLE, Environment
from adapters.settings_keys import ANY_NAME, find_key
from adapters.settings_problems import printable
from adapters.settings_schema import Document
from adapters.settings_source import KeyPath, Source
from adapters.settings_validation import said

MAX_NOTICES = 100

_NO_PLAIN_KEYS = frozenset(
    {
        ("redis", "url"),  # most hold no password
        ("redis", "jobs_url"),
        ("gateway", "named_keys", ANY_NAME, "hash"),
        ("localai", "backends", ANY_NAME, "api_key_env"),
    }
)
"""Never shown, and yet no key that somebody could use."""


def notices_of(
    document: Document, source: Source, environment: Environment, found: Sequence[str]
) -> tuple[str, ...]:
    """One line for each key that was set and does nothing yet, with what holds in its place.

    ``found`` comes first: what was already seen while the file was read. Bounded.
    """
    lines = [
        *found,
        *environment.notices,
        *_without_effect(source),
        *_moot_policy(document),
        *_moot_window(document, source),
        *_moot_preload(document, environment),
        *_plain_keys(source),
    ]
    kept = tuple(printable(line) for line in lines[:MAX_NOTICES])
    rest = len(lines) - len(kept)
    return (*kept, f"… and {rest} more") if rest else kept


def _without_effect(source: Source) -> Iterator[str]:
    """Once for each key, and once for a whole section that has none, whoever set a part of it."""
    notices: dict[KeyPath, str] = {}
    for place in source.origins:
        for length in range(1, len(place) + 1):
            key = find_key(place[:length])
            if key is not None and key.no_effect is not None and len(key.path) == length:
                notices[place[:length]] = key.no_effect
    for place, instead in notices.items():
        yield f"{said(place)} has no effect yet: {instead}"


def _moot_policy(document: Document) -> Iterator[str]:
    scheduler = document.scheduler
    if scheduler.mode == "resource-aware" and scheduler.policy != "headstart":
        yield (
            f"scheduler.policy = {scheduler.policy} is not used: mode resource-aware is active "
            "with the default policy; write mode: active"
        )


def _moot_window(document: Document, source: Source) -> Iterator[str]:
    window_s = document.optimization.prefetch_window_minutes * 60
    horizon_s = document.scheduler.prefetch_horizon_seconds
    if ("optimization", "prefetch_window_minutes") in source.origins and window_s > horizon_s:
        yield (
            "optimization.prefetch_window_minutes is more than a prefetch uses: it aims "
            f"{horizon_s:g} s ahead (scheduler.prefetch_horizon_seconds); weights are read ahead "
            "for all of it"
        )


def _plain_keys(source: Source) -> Iterator[str]:
    """Keys that stand in the file itself, where everybody who reads it finds them."""
    told: dict[str, None] = {}
    for place, origin in source.origins.items():
        key = find_key(place)
        if key is None or not key.is_secret or key.path in _NO_PLAIN_KEYS:
            continue
        if origin.rpartition(":")[2].isdigit() and _is_set(source, place):
            told[said(place[: len(key.path)])] = None
    for name in told:
        yield f"{name} stands in the file as plain text: a file or a variable can hold it instead"


def _is_set(source: Source, place: KeyPath) -> bool:
    """Whether something is said there that counts: what the environment replaced does not."""
    value: Any = source.values
    for name in place:
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and int(name) < len(value):
            value = value[int(name)]
        else:
            return False
    return value is not None


def _moot_preload(document: Document, environment: Environment) -> Iterator[str]:
    if environment.preload is True and not any(m.preload for m in document.models.values()):
        yield (
            f"{PRELOAD_VARIABLE} = true loads what LocalAI's own files mark: no model here has "
            "preload: true"
        )
