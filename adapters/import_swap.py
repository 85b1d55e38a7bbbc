"""Configurations of a proxy that starts one server per model and swaps them → ``headstart.yaml``.

Commands are text and are never interpreted: what runs a model is LocalAI's model file. Taken are
the models' names, how many requests they serve at once, what is loaded at start, what stays
loaded, and how long a load may take.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from adapters.import_parts import YES, Imported, seconds_of, truth_of
from adapters.settings_problems import shown

KIND = "a model-swapping proxy's configuration"

_TAKEN = frozenset({"models", "macros", "groups", "hooks", "healthCheckTimeout"})
_KEYS = frozenset({"apiKeys"})
_OLD = frozenset({"profiles"})
_BUILT_IN = frozenset({"PORT", "MODEL_ID", "PID"})
_REFERENCE = re.compile(r"\$\{([^${}]+)\}")
_MAX_DEPTH = 10
_DAY_S = 86_400.0
_MAX_SLOTS = 100_000


def is_swap_config(document: object) -> bool:
    """Whether its models are commands to start servers with."""
    models = document.get("models") if isinstance(document, Mapping) else None
    return isinstance(models, Mapping) and any(
        isinstance(entry, Mapping) and "cmd" in entry for entry in models.values()
    )


def import_swap(document: Mapping[str, Any], environ: Mapping[str, str]) -> Imported:
    """What can be taken of it, and lines about the rest."""
    result = Imported(KIND)
    models = document.get("models")
    entries = {str(name): entry for name, entry in _items(models) if isinstance(entry, Mapping)}
    for name in entries:
        result.put("models", name, {})
    macros = {str(name): value for name, value in _items(document.get("macros"))}
    for name, entry in entries.items():
        _model(result, name, entry)
        own = {str(macro): value for macro, value in _items(entry.get("macros"))}
        _references(result, name, entry, {**macros, **own}, environ)
    _addresses(result, entries)
    _groups(result, document.get("groups"), entries)
    _start(result, document, entries)
    _rest(result, document)
    return result


def _model(result: Imported, name: str, entry: Mapping[str, Any]) -> None:
    limit = entry.get("concurrencyLimit")
    if isinstance(limit, int) and 0 < limit <= _MAX_SLOTS:
        result.put("models", name, "slots", limit)
    aliases = entry.get("aliases")
    for alias in aliases if isinstance(aliases, list) else ():
        if str(alias) != name:
            result.note(
                f"models.{name}: the alias {shown(str(alias))} belongs into LocalAI's models "
                f"folder, as a file with name: {alias} and alias: {name}"
            )
    ttl_s = seconds_of(entry["ttl"]) if "ttl" in entry else None
    if ttl_s is not None and ttl_s > 0:
        result.note(
            f"models.{name}: ttl {ttl_s:g} s is not taken: a model goes when its room is needed; "
            "scheduler.policy idle-timeout with idle_timeout_seconds holds for all models"
        )
    elif ttl_s == 0:
        result.note(
            f"models.{name}: ttl 0 (never by time) needs nothing: no model goes by time; "
            "pinned: true would keep it from going at all"
        )


def _references(
    result: Imported,
    name: str,
    entry: Mapping[str, Any],
    macros: Mapping[str, Any],
    environ: Mapping[str, str],
) -> None:
    """Say which variables are not set and which macros lead back to themselves."""
    texts = [
        value for key in ("cmd", "proxy", "cmdStop") if isinstance(value := entry.get(key), str)
    ]
    for reference in _named_in(texts):
        if reference.startswith("env."):
            _variable(result, name, reference, environ)
        elif reference in macros:
            for found in _followed(reference, macros, (), result, name):
                if found.startswith("env."):
                    _variable(result, name, found, environ)
        elif reference not in _BUILT_IN:
            result.note(f"models.{name}: ${{{reference}}} is no macro: it stays as text")


def _followed(
    macro: str, macros: Mapping[str, Any], seen: tuple[str, ...], result: Imported, name: str
) -> Iterator[str]:
    """Variables that a macro names, through other macros; a circle is told."""
    if macro in seen or len(seen) >= _MAX_DEPTH:
        circle = " → ".join((*seen, macro))
        result.note(f"models.{name}: the macros {circle} lead back to themselves or too deep")
        return
    for reference in _named_in([str(macros[macro])]):
        if reference in macros:
            yield from _followed(reference, macros, (*seen, macro), result, name)
        else:
            yield reference


def _variable(result: Imported, name: str, reference: str, environ: Mapping[str, str]) -> None:
    variable = reference.removeprefix("env.")
    if not environ.get(variable):
        result.note(f"models.{name}: the environment variable {variable} is not set")


def _named_in(texts: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(match[1].strip() for t in texts for match in _REFERENCE.finditer(t)))


def _addresses(result: Imported, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Models with one fixed address could never run together there; under LocalAI they can."""
    places: Counter[str] = Counter()
    for entry in entries.values():
        proxy = entry.get("proxy")
        if isinstance(proxy, str) and "${" not in proxy:
            places[urlsplit(proxy).netloc or proxy] += 1
    for place, count in places.items():
        if count > 1:
            result.note(
                f"{count} models share the address {place}: they could never be loaded together "
                "there; LocalAI starts a server for each, so that memory alone decides"
            )


def _groups(result: Imported, groups: object, entries: Mapping[str, Mapping[str, Any]]) -> None:
    for group, spec in _items(groups):
        if not isinstance(spec, Mapping):
            continue
        members = spec.get("members")
        named = [str(name) for name in members] if isinstance(members, list) else []
        known = [name for name in named if name in entries]
        for name in sorted(set(named) - set(known)):
            result.note(f"groups.{group}: there is no model {shown(name)}")
        if truth_of(spec.get("persistent", False)):
            for name in known:
                result.put("models", name, "pinned", YES)
        elif known:
            result.put("resources", str(group), "models", known)
            result.note(
                f"groups.{group}: is taken as resources.{group} without limits; memory_limit and "
                "concurrency bound it"
            )
        if truth_of(spec.get("swap", True)) and len(known) > 1:
            result.note(
                f"groups.{group}: swap (one member at a time) is LocalAI's concurrency_groups in "
                "the model files; here memory decides"
            )
        if truth_of(spec.get("exclusive", True)) and not truth_of(spec.get("persistent", False)):
            result.note(
                f"groups.{group}: exclusive (its load unloads all others) is not taken: others go "
                "as far as their room is needed"
            )


def _start(
    result: Imported, document: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]]
) -> None:
    hooks = document.get("hooks")
    on_startup = hooks.get("on_startup") if isinstance(hooks, Mapping) else None
    preload = on_startup.get("preload") if isinstance(on_startup, Mapping) else None
    for name in preload if isinstance(preload, list) else ():
        if str(name) in entries:
            result.put("models", str(name), "preload", YES)
        else:
            result.note(f"hooks.on_startup.preload: there is no model {shown(str(name))}")
    limit_s = seconds_of(document.get("healthCheckTimeout"))
    if limit_s is not None and 0 < limit_s <= _DAY_S:
        result.put("scheduler", "load_timeout_seconds", limit_s)


def _rest(result: Imported, document: Mapping[str, Any]) -> None:
    for key in document:
        name = str(key)
        if name in _TAKEN:
            continue
        if name in _KEYS:
            result.note(
                "apiKeys: keys are not copied: headstart keys hash makes of each what belongs "
                "under gateway.named_keys"
            )
        elif name in _OLD:
            result.note(f"{name}: is an old key of that proxy and is not taken")
        elif name == "globalTTL":
            result.note(
                "globalTTL: is not taken: a model goes when its room is needed; "
                "scheduler.policy idle-timeout with idle_timeout_seconds goes by time"
            )
        else:
            result.note(f"{name}: is not taken")


def _items(value: object) -> list[tuple[Any, Any]]:
    return list(value.items()) if isinstance(value, Mapping) else []
