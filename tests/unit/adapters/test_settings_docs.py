"""The schema, the example and the reference that ship are those of the code, and hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from adapters.settings import load_settings
from adapters.settings_docs import example_file, reference_page
from adapters.settings_environment import variable_names
from adapters.settings_keys import (
    ANY_NAME,
    find_key,
    holds_secret,
    json_schema,
    known_keys,
    names_in,
    schema_text,
)
from adapters.settings_problems import Problems
from adapters.settings_source import read_yaml

ROOT = Path(__file__).parents[3]
HOME = {"HOME": "/home/op"}


@pytest.mark.parametrize(
    ("path", "text", "command"),
    [
        ("data/headstart.schema.json", schema_text(), "schema"),
        ("data/headstart.example.yaml", example_file(), "example"),
        ("docs/reference/configuration.md", reference_page(), "docs"),
    ],
)
def test_what_ships_is_current(path: str, text: str, command: str) -> None:
    on_disk = (ROOT / path).read_text(encoding="utf-8")
    assert on_disk == text, f"write it anew: headstart config {command} > {path}"


def test_the_example_equals_the_defaults_and_gives_no_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = load_settings(HOME, ROOT / "data/headstart.example.yaml")
    monkeypatch.chdir(tmp_path)
    bare = load_settings(HOME)
    assert example.notices == ()
    assert example.document.model_dump(exclude={"models", "resources", "autoscaling"}) == (
        bare.document.model_dump(exclude={"models", "resources", "autoscaling"})
    )
    assert not example.document.models
    assert example.gateway_config() == bare.gateway_config()
    assert example.controller_config() == bare.controller_config()


def uncommented(text: str) -> str:
    """The example with its samples in force; prose starts with a space after the ``#``."""
    return re.sub(r"(?m)^( *)#(?![ #]|$)|^( *)#(?=  )", r"\1\2", text)


def test_the_samples_of_the_example_are_right_and_complete(tmp_path: Path) -> None:
    text = uncommented(example_file()).replace('  url: "http://127.0.0.1:8081"\n', "")
    # Of the ways to say a key, one may be taken.
    text = re.sub(r"(?m)^ *api_key_(?:file|env): .*\n", "", text)
    path = tmp_path / "all.yaml"
    path.write_text(text, encoding="utf-8")
    settings = load_settings(HOME, path)
    assert settings.document.models["llama-3-8b-instruct"].slots == 4
    assert settings.document.localai.backends[0].name == "gpu-1"
    said = {
        key.path for place in settings.source.origins if (key := find_key(place)) is not None
    } | {
        ("localai", "url"),
        ("localai", "api_key_file"),
        ("localai", "backends", "*", "api_key_file"),
        ("localai", "backends", "*", "api_key_env"),
    }
    assert said == set(known_keys())


def test_every_key_and_variable_is_in_the_reference() -> None:
    page = reference_page()
    for key in known_keys().values():
        assert f"`{key.path[-1]}`" in page or key.is_section, key.path
    for name in variable_names():
        assert f"`{name}`" in page


def test_every_key_says_what_it_does() -> None:
    for key in known_keys().values():
        assert key.what.endswith("."), key.path
        assert key.allowed, key.path


def test_places_and_their_keys() -> None:
    assert find_key(()) is None
    assert find_key(("gateway", "keys", "3")) is known_keys()["gateway", "keys"]
    assert find_key(("gateway", "keys", "x")) is not None
    assert find_key(("gateway", "nothing")) is None
    assert find_key(("models", "a.b", "preload")) is known_keys()["models", ANY_NAME, "preload"]
    assert names_in(("memory",)) == ("gpu_budget_mb", "host_budget_mb", "reserve_ratio")
    assert "gateway" in names_in(())
    assert holds_secret(("gateway",))
    assert holds_secret(("localai", "backends", "0", "api_key"))
    assert not holds_secret(("memory",))
    assert not holds_secret(("nothing",))
    assert known_keys()["gateway", "port"].variable == "HEADSTART_GATEWAY__PORT"
    assert known_keys()["gateway",].variable is None
    assert known_keys()["models", ANY_NAME, "preload"].variable is None


# A small validator of the words that our schema uses, so that the schema itself is tested.


def complaint(value: Any, schema: Any, root: dict[str, Any]) -> str | None:
    """Why the value does not fit the schema; None when it does."""
    if schema is True:
        return None
    if "$ref" in schema:
        return complaint(value, root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], root)
    if "anyOf" in schema:
        found = [complaint(value, choice, root) for choice in schema["anyOf"]]
        if all(found):
            return "; ".join(text for text in found if text)
    for choice in schema.get("allOf", ()):
        if found_one := complaint(value, choice, root):
            return found_one
    return _own_complaint(value, schema, root)


def _own_complaint(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> str | None:
    kinds = schema.get("type", [])
    if kinds and not any(
        _is(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)
    ):
        return f"{value!r} is no {kinds}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{value!r} is none of {schema['enum']}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
        if not low <= value <= high or (above is not None and value <= above):
            return f"{value} is out of bounds"
        if below is not None and value >= below:
            return f"{value} is out of bounds"
    if isinstance(value, list):
        items = [complaint(item, schema.get("items", True), root) for item in value]
        return next((text for text in items if text), None)
    return _of_mapping(value, schema, root) if isinstance(value, dict) else None


def _of_mapping(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any]) -> str | None:
    missing = set(schema.get("required", ())) - set(value)
    if missing:
        return f"misses {missing}"
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, item in value.items():
        if name not in known and others is False:
            return f"{name} is not known"
        if found := complaint(item, known.get(name, others), root):
            return f"{name}: {found}"
    return None


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    kinds = {"string": str, "integer": int, "number": (int, float), "array": list, "object": dict}
    return value is None if kind == "null" else isinstance(value, kinds.get(kind, ()))  # type: ignore[arg-type] # a table of types


def fits(text: str) -> str | None:
    schema = json_schema()
    return complaint(read_yaml(text.encode(), "x", Problems()).values, schema, schema)


@pytest.mark.parametrize(
    "text",
    [
        example_file(),
        uncommented(example_file()),
        "gateway:\nmodels:\n",
        "scheduler: {mode: resource_aware}\nload_balancing: {strategy: weighted_round_robin}",
        "models: [{name: a, backend: x, parameters: {model: y}, preload: true}]",
        "models: {a: {context_size: 1, pinned: true}}",
        "resources: {a: {cpu_limit: 2, memory_limit: 8Gi}}",
    ],
)
def test_the_schema_takes_what_we_take(text: str) -> None:
    assert fits(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "gatway: {}",
        "gateway: {port: 0}",
        "gateway: {port: '80'}",
        "memory: {reserve_ratio: 1}",
        "memory: {gpu_budget_mb: 0}",
        "scheduler: {mode: shadow}",
        "scheduler: {window_seconds: 0}",
        "models: [{preload: true}]",
        "models: {a: {prelod: true}}",
        "localai: {backends: [{name: a}]}",
    ],
)
def test_the_schema_refuses_what_we_refuse(text: str) -> None:
    assert fits(text) is not None


def test_nothing_of_ours_leaks_into_the_schema_that_ships() -> None:
    text = schema_text()
    assert "x-headstart" not in text
    assert "/work" not in text
    assert json.loads(text)["title"] == "headstart.yaml"
