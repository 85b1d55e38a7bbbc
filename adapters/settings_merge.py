"""File and environment → one set of values that the schema can check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapters.localai_keys import LOCALAI_MODEL_KEYS
from adapters.settings_environment import PRELOAD_VARIABLE, Environment
from adapters.settings_keys import find_key
from adapters.settings_problems import Problems, printable, shown
from adapters.settings_source import KeyPath, Source


def merge(file: Source, environment: Environment, problems: Problems, notices: list[str]) -> Source:
    """One source of both: the environment's values in the place of the file's.

    ``models`` becomes a mapping, empty sections become empty mappings, and LocalAI's own keys
    are taken out of the models' entries. What that changes for people goes to ``notices``.
    """
    named = name_models(file, problems)
    values = without_nulls(named.values, ())
    _drop_localai_keys(values, notices)
    said = environment.source
    if "url" in said.values.get("localai", {}):
        _drop_backends(values, said.origins[("localai", "url")], notices)
    origins = {
        place: origin for place, origin in named.origins.items() if not _covered(place, said)
    }
    merged = Source(_overlaid(values, said.values), origins | said.origins)
    _preload(merged, environment)
    return merged


def name_models(source: Source, problems: Problems) -> Source:
    """The same, with a list of models turned into a mapping by their names."""
    models = source.values.get("models")
    if isinstance(models, dict):
        _check_names(models, source, problems)
    if not isinstance(models, list):
        return source
    names = _names_by_index(models, source, problems)
    named = {name: models[int(index)] for index, name in names.items()}
    origins = {}
    for place, origin in source.origins.items():
        if place[0] != "models" or len(place) == 1:
            origins[place] = origin
        elif place[1] in names:
            origins["models", names[place[1]], *place[2:]] = origin
    return Source({**source.values, "models": named}, origins)


def _check_names(models: Mapping[str, Any], source: Source, problems: Problems) -> None:
    for key, entry in models.items():
        name = entry.get("name", key) if isinstance(entry, dict) else key
        if name != key:
            where = source.origins["models", key, "name"]
            problems.add(where, f"models.{key}.name = {shown(name)}: must be {shown(key)}")


def _names_by_index(models: list[Any], source: Source, problems: Problems) -> dict[str, str]:
    names: dict[str, str] = {}
    taken: set[str] = set()
    for index, entry in enumerate(models):
        where = source.origins["models", str(index)]
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            problems.add(where, f"models[{index}]: must be a mapping with a name, which is text")
        elif name in taken:
            problems.add(where, f"models[{index}].name = {shown(name)}: stands twice")
        else:
            taken.add(name)
            names[str(index)] = name
    return names


def without_nulls(values: Mapping[str, Any], path: KeyPath) -> dict[str, Any]:
    """The same with empty sections for null: all keys of a section may be commented out."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        key = find_key((*path, name))
        if key is None or not key.is_section:
            result[name] = value
        elif value is None:
            result[name] = () if key.holds_list else {}
        elif isinstance(value, dict):
            result[name] = without_nulls(value, (*path, name))
        else:
            result[name] = value
    return result


def _drop_localai_keys(values: Mapping[str, Any], notices: list[str]) -> None:
    models = values.get("models")
    for name, entry in models.items() if isinstance(models, dict) else ():
        if not isinstance(entry, dict):
            continue
        entry.pop("name", None)
        theirs = [key for key in entry if key in LOCALAI_MODEL_KEYS]
        for key in theirs:
            del entry[key]
        if theirs:
            keys = ", ".join(theirs)
            notices.append(
                printable(f"models.{name}: LocalAI's own keys are not read here: {keys}")
            )


def _drop_backends(values: Mapping[str, Any], variable: str, notices: list[str]) -> None:
    section = values.get("localai")
    if isinstance(section, dict) and section.pop("backends", None):
        notices.append(f"localai.backends is not used: {variable} takes its place")


def _covered(place: KeyPath, said: Source) -> bool:
    return any(place[:length] in said.origins for length in range(1, len(place) + 1))


def _overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for name, value in above.items():
        under = result.get(name, {})
        if isinstance(value, dict):
            # A section that is no mapping stays, so that its own error is reported.
            result[name] = _overlaid(under, value) if isinstance(under, dict) else under
        else:
            result[name] = value
    return result


def _preload(merged: Source, environment: Environment) -> None:
    """``LOCALAI_PRELOAD_MODELS``: none, those with ``preload: true``, or exactly these."""
    preload = environment.preload
    models = merged.values.setdefault("models", {})
    if preload is None or preload is True or not isinstance(models, dict):
        return
    wanted = preload if isinstance(preload, tuple) else ()
    for name in dict.fromkeys((*models, *wanted)):
        entry = models.setdefault(name, {})
        if isinstance(entry, dict) and ("preload" in entry or name in wanted):
            entry["preload"] = name in wanted
            merged.origins[("models", name, "preload")] = PRELOAD_VARIABLE
