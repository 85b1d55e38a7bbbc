"""Values that a JSON schema allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MAX_DEPTH = 8
"""Levels of a schema that are filled; a schema may refer to itself."""

_PLAIN: dict[str, object] = {"string": "word", "integer": 1, "number": 1, "boolean": True}


def sample(schema: Mapping[str, Any]) -> object:
    """A value that the schema allows, always the same one."""
    return _sample(schema, schema, 0)


def _sample(schema: object, root: Mapping[str, Any], depth: int) -> object:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return None
    if "$ref" in schema:
        return _sample(_referred(str(schema["$ref"]), root), root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if isinstance(values := schema.get("enum"), list) and values:
        return values[0]
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(options := schema.get(key), list) and options:
            return _sample(options[0], root, depth + 1)
    return _of_kind(schema, root, depth)


def _of_kind(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> object:
    kind = schema.get("type", "object")
    if kind == "array":
        return [_sample(schema.get("items", {"type": "string"}), root, depth + 1)]
    if kind == "object":
        properties = schema.get("properties")
        listed = properties.items() if isinstance(properties, Mapping) else ()
        return {name: _sample(inner, root, depth + 1) for name, inner in listed}
    return schema.get("minimum", _PLAIN.get(str(kind)))


def _referred(reference: str, root: Mapping[str, Any]) -> object:
    found: object = root
    for key in reference.removeprefix("#/").split("/"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
