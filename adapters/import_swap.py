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
    entries = {}
    for name, entry in _items(models):
        if not isinstance(entry, Mapping):
            result.odd(f"models.{name}", entry, "a mapping with cmd")
        elif result.takes_name("models", str(name)):
            entries[str(name)] = entry
    for name in entries:
        result.put("models", name, {})
    macros = {
        str(name): value for name, value in _told_items(result, "macros", document.get("macros"))
    }
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
    if type(limit) is int and 0 < limit <= _MAX_SLOTS:
        result.put("models", name, "slots", limit)
    elif limit not in (None, 0) or isinstance(limit, bool):
        where = f"models.{name}.concurrencyLimit"
        result.odd(where, limit, f"a whole number from 1 to {_MAX_SLOTS}")
    aliases = entry.get("aliases")
    if not isinstance(aliases, list | None):
        result.odd(f"models.{name}.aliases", aliases, "a list of names")
    for alias in aliases if isinstance(aliases, list) else ():
        if str(alias) != name:
            result.note(
                f"models.{name}: the alias {shown(str(alias))} belongs into LocalAI's models "
                f"folder, as a file with name: {shown(str(alias))} and alias: {shown(name)}"
            )
    if "ttl" in entry:
        _ttl(result, name, entry["ttl"])


def _ttl(result: Imported, name: str, ttl: object) -> None:
    ttl_s = seconds_of(ttl)
    if ttl_s is None:
        result.odd(f"models.{name}.ttl", ttl, "seconds")
    elif ttl_s > 0:
        result.note(
            f"models.{name}: ttl {ttl_s:g} s is not taken: a model goes when its room is needed; "
            "scheduler.policy idle-timeout with idle_timeout_seconds holds for all models"
        )
    else:
        result.note(
            f"models.{name}: ttl {ttl_s:g} (never by time) needs nothing: no model goes by time; "
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
    for group, spec in _told_items(result, "groups", groups):
        where = f"groups.{group}"
        if not isinstance(spec, Mapping):
            result.odd(where, spec, "a mapping with members")
            continue
        known = _members(result, where, spec.get("members"), entries)
        is_persistent = _switch(result, where, spec, "persistent", default=False)
        if is_persistent:
            for name in known:
                result.put("models", name, "pinned", YES)
        elif known and result.takes_name("groups", str(group)):
            result.put("resources", str(group), "models", known)
            result.note(
                f"{where}: is taken as resources.{group} without limits; memory_limit and "
                "concurrency bound it"
            )
        if _switch(result, where, spec, "swap", default=True) and len(known) > 1:
            result.note(
                f"{where}: swap (one member at a time) is LocalAI's concurrency_groups in "
                "the model files; here memory decides"
            )
        if _switch(result, where, spec, "exclusive", default=True) and not is_persistent:
            result.note(
                f"{where}: exclusive (its load unloads all others) is not taken: others go "
                "as far as their room is needed"
            )


def _members(
    result: Imported, where: str, members: object, entries: Mapping[str, object]
) -> list[str]:
    if not isinstance(members, list | None):
        result.odd(f"{where}.members", members, "a list of models")
    named = [str(name) for name in members] if isinstance(members, list) else []
    for name in sorted(set(named) - set(entries)):
        result.note(f"{where}: there is no model {shown(name)}")
    return [name for name in dict.fromkeys(named) if name in entries]


def _switch(
    result: Imported, where: str, spec: Mapping[str, Any], key: str, *, default: bool
) -> bool:
    value = spec.get(key, default)
    found = truth_of(value)
    if found is None:
        result.odd(f"{where}.{key}", value, "true or false")
    return default if found is None else found


def _start(
    result: Imported, document: Mapping[str, Any], entries: Mapping[str, Mapping[str, Any]]
) -> None:
    hooks = dict(_told_items(result, "hooks", document.get("hooks")))
    on_startup = dict(_told_items(result, "hooks.on_startup", hooks.get("on_startup")))
    preload = on_startup.get("preload")
    if not isinstance(preload, list | None):
        result.odd("hooks.on_startup.preload", preload, "a list of models")
    for name in preload if isinstance(preload, list) else ():
        if str(name) in entries:
            result.put("models", str(name), "preload", YES)
        else:
            result.note(f"hooks.on_startup.preload: there is no model {shown(str(name))}")
    if document.get("healthCheckTimeout") is None:
        return
    limit_s = seconds_of(document["healthCheckTimeout"])
    if limit_s is not None and 0 < limit_s <= _DAY_S:
        result.put("scheduler", "load_timeout_seconds", limit_s)
    else:
        takes = f"seconds above 0, up to {_DAY_S:.0f}"
        result.odd("healthCheckTimeout", document["healthCheckTimeout"], takes)


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


def _told_items(result: Imported, where: str, value: object) -> list[tuple[Any, Any]]:
    if not isinstance(value, Mapping | None):
        result.odd(where, value, "a mapping")
    return _items(value)


def _items(value: object) -> list[tuple[Any, Any]]:
    return list(value.items()) if isinstance(value, Mapping) else []
