"""Every key of ``headstart.yaml`` as a table, and its JSON schema; both told by the classes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from adapters.localai_keys import LOCALAI_MODEL_KEYS
from adapters.settings_schema import Document
from adapters.settings_source import KeyPath
from adapters.settings_types import ALLOWED, NO_EFFECT

ANY_NAME = "*"
"""Stands for a name that people choose, or for the number of a list's item."""

_BOUND_NAMES = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key, or one section of keys.

    Attributes
    ----------
    path : tuple of str
        Where it stands; ``*`` for names that people choose.
    what : str
        What it does.
    allowed : str
        Follows "must be".
    default : object
        As JSON; None also where nothing is set.
    no_effect : str or None
        The key does nothing yet; this is what takes its place.
    is_section, is_list, is_secret : bool
        Whether it holds keys, a list of values, or something that is never shown.
    holds_list : bool
        Whether its value is a list, of values or of sections.
    required : bool
        Whether its section must have it.
    """

    path: KeyPath
    what: str
    allowed: str
    default: object
    no_effect: str | None = None
    is_section: bool = False
    is_list: bool = False
    holds_list: bool = False
    is_secret: bool = False
    required: bool = False

    @property
    def variable(self) -> str | None:
        """Its environment variable; None for sections and for keys below a chosen name."""
        if self.is_section or ANY_NAME in self.path:
            return None
        return "HEADSTART_" + "__".join(self.path).upper()


@lru_cache(maxsize=1)
def known_keys() -> Mapping[KeyPath, Key]:
    """All keys and sections by their place, in the order of the classes."""
    root = Document.model_json_schema()
    return {key.path: key for key in _keys_in(root, root, ())}


def find_key(path: KeyPath) -> Key | None:
    """The key that a place in a real configuration belongs to; None for unknown ones.

    Items of a list of values belong to the list's key.
    """
    keys = known_keys()
    found: KeyPath = ()
    for name in path:
        if (*found, name) in keys:
            found = (*found, name)
        elif (*found, ANY_NAME) in keys:
            found = (*found, ANY_NAME)
        elif not (found in keys and keys[found].is_list):
            return None
    return keys.get(found)


def holds_secret(path: KeyPath) -> bool:
    """Whether the place, or any key below it, is never shown."""
    key = find_key(path)
    if key is None:
        return False
    depth = len(key.path)
    return any(k.is_secret for k in known_keys().values() if k.path[:depth] == key.path)


def names_in(path: KeyPath) -> tuple[str, ...]:
    """The keys that may stand in the section at ``path``; ``()``: the sections."""
    section = find_key(path)
    parent = section.path if section is not None else ()
    return tuple(
        place[-1] for place in known_keys() if place[:-1] == parent and place[-1] != ANY_NAME
    )


def json_schema() -> dict[str, Any]:
    """The schema that ships as ``data/headstart.schema.json``, for editors and other tools."""
    schema = _public(Document.model_json_schema())
    model = schema["$defs"]["Model"]
    model["properties"] |= {
        name: {"description": "LocalAI's own; not read here."}
        for name in sorted(LOCALAI_MODEL_KEYS)
    }
    variants = model["properties"]["variants"]
    variants["items"] = {"anyOf": [variants["items"], {"type": "string"}]}
    models = schema["properties"]["models"]
    by_name = {"type": models.pop("type"), "additionalProperties": models["additionalProperties"]}
    entry = {"allOf": [models.pop("additionalProperties")], "required": ["name"]}
    models["anyOf"] = [by_name, {"type": "array", "items": entry}, {"type": "null"}]
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "title": "headstart.yaml", **schema}


def schema_text() -> str:
    """``data/headstart.schema.json`` as it stands on disk."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _keys_in(root: Mapping[str, Any], section: Mapping[str, Any], path: KeyPath) -> Iterator[Key]:
    for name, spec in section["properties"].items():
        required = name in section.get("required", ())
        yield from _key_and_below(root, spec, (*path, name), required=required)


def _key_and_below(
    root: Mapping[str, Any], spec: Mapping[str, Any], path: KeyPath, *, required: bool
) -> Iterator[Key]:
    target = _plain(root, spec)
    named = target.get("additionalProperties") or target.get("items") or {}
    below = _plain(root, named) if isinstance(named, dict) else {}
    holds_sections = "properties" in below
    is_section = "properties" in target or holds_sections
    yield Key(
        path=path,
        what=spec.get("description") or target.get("description", ""),
        allowed=_allowed(target, below),
        default=spec.get("default"),
        no_effect=target.get(NO_EFFECT),
        is_section=is_section,
        is_list=target.get("type") == "array" and not holds_sections,
        holds_list=target.get("type") == "array",
        is_secret="password" in {target.get("format"), below.get("format")},
        required=required,
    )
    if "properties" in target:
        yield from _keys_in(root, target, path)
    if holds_sections:
        yield Key(
            path=(*path, ANY_NAME),
            what=below.get("description", ""),
            allowed=_allowed(below, {}),
            default=None,
            is_section=True,
        )
        yield from _keys_in(root, below, (*path, ANY_NAME))


def _plain(root: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """A field's schema with references followed, "or null" dropped and bounds renamed."""
    merged = dict(spec)
    for choice in merged.pop("anyOf", ()):
        if choice.get("type") != "null":
            merged = choice | merged
    reference = merged.pop("$ref", None)
    if reference is not None:
        merged = root["$defs"][reference.rsplit("/", 1)[-1]] | merged
    return {_BOUND_NAMES.get(name, name): value for name, value in merged.items()}


def _allowed(target: Mapping[str, Any], items: Mapping[str, Any]) -> str:
    """What a value must be, in words."""
    if ALLOWED in target:
        return str(target[ALLOWED])
    if "properties" in target:
        return f"a mapping with the keys {', '.join(target['properties'])}"
    if "enum" in target:
        return f"one of {', '.join(target['enum'])}"
    match target.get("type"):
        case "boolean":
            return "true or false"
        case "array":
            return f"a list of {_allowed(items, {}).removeprefix('one of ')}"
        case "integer":
            return f"a whole number {_bounds(target)}"
        case _:
            return f"a number {_bounds(target)}"


def _bounds(target: Mapping[str, Any]) -> str:
    low, above = target.get("minimum"), target.get("exclusiveMinimum")
    high, below = target.get("maximum"), target.get("exclusiveMaximum")
    start = f"above {above:.12g}" if low is None else f"from {low:.12g}"
    if high is None:
        return f"{start}, below {below:.12g}"
    return f"{start}, at most {high:.12g}" if low is None else f"{start} to {high:.12g}"


def _public(node: Any, *, in_properties: bool = False) -> Any:
    """The schema without our extras, with both spellings of words, and with empty sections."""
    if isinstance(node, list):
        return [_public(item) for item in node]
    if not isinstance(node, dict):
        return node
    if in_properties:
        return {name: _public(value) for name, value in node.items()}
    kept = {
        _BOUND_NAMES.get(name, name): _public(value, in_properties=name in {"properties", "$defs"})
        for name, value in node.items()
        if name not in {"title", "writeOnly", ALLOWED, NO_EFFECT}
    }
    note = node.get(NO_EFFECT)
    if note is not None:
        kept["description"] = f"{kept['description']} No effect yet: {note}."
    if "enum" in kept:
        kept["enum"] = list(
            dict.fromkeys(s for w in kept["enum"] for s in (w, w.replace("-", "_")))
        )
    if "$ref" in kept and "default" in kept:
        # An empty section, with all its keys commented out, reads as null.
        del kept["default"]
        kept["anyOf"] = [{"$ref": kept.pop("$ref")}, {"type": "null"}]
    return kept
