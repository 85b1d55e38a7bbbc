"""Whatever a file or the environment holds: settings, or one Invalid that people can read."""

from __future__ import annotations

import contextlib
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapters.model_profiles import parse_scheduling_profile
from adapters.settings import load_settings
from adapters.settings_environment import variable_names
from adapters.settings_keys import ANY_NAME, find_key, known_keys
from adapters.settings_listing import entries
from adapters.settings_problems import MAX_PROBLEMS
from contracts.errors import Invalid

anything = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

YAML_PIECES = [
    *"[]{}:,-?#&*!|>'\"%@`\n\t ~",
    ": ",
    "- ",
    "\n  ",
    "<<: ",
    "&a ",
    "*a",
    "---\n",
    "%YAML 9.9\n",
    "!!python/object:os.system ",
    '"\\U99999999"',
    '"\\ud800"',
    "\x00",
    "\ufeff",
    "\u2028",
    *("gateway", "port", "keys", "models", "name", "localai", "backends", "memory", "null", "8080"),
]
yaml_like = st.lists(st.sampled_from(YAML_PIECES), max_size=40).map("".join)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.just("8Gi")
)
names = st.one_of(
    st.sampled_from(sorted({part for path in known_keys() for part in path if part != ANY_NAME})),
    st.text(max_size=8),
)
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=6)),
    max_leaves=20,
)
sections = st.sampled_from([path[0] for path in known_keys() if len(path) == 1])
documents = st.dictionaries(sections, trees, max_size=5)


def check(environ: dict[str, str], path: Path | None) -> None:
    try:
        loaded = load_settings(environ, path)
    except Invalid as error:
        lines = str(error).splitlines()
        assert 1 <= len(lines) <= MAX_PROBLEMS + 1
        assert all(line.isprintable() and len(line) < 2000 for line in lines)
        return
    assert loaded.gateway_config().nodes
    assert loaded.controller_config().planner.window_s > 0
    assert entries(loaded)
    assert all(notice.isprintable() for notice in loaded.notices)


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    return tmp_path / "headstart.yaml"


@anything
@given(data=st.one_of(st.binary(max_size=300), yaml_like.map(lambda t: t.encode("utf-8"))))
def test_any_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    check({"HOME": "/home/op"}, path)
    with contextlib.suppress(Invalid):
        parse_scheduling_profile(data)


def as_yaml(value: Any) -> str:
    """Flow style, every text quoted by hand so that any character may stand in it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_yaml(str(k))}: {as_yaml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_yaml, value)) + "]"
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(character):08x}" for character in value) + '"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value).replace("inf", ".inf").replace("nan", ".nan")


@anything
@given(document=documents)
def test_any_document_of_known_keys(path: Path, document: dict[str, Any]) -> None:
    path.write_text(as_yaml(document), encoding="utf-8")
    check({"HOME": "/home/op"}, path)


def hide(value: Any, place: tuple[str, ...]) -> Any:
    """The document with a marked secret wherever a key for a secret stands."""
    key = find_key(place)
    if key is not None and key.is_secret:
        return _marked(value)
    if isinstance(value, dict):
        return {name: hide(item, (*place, name)) for name, item in value.items()}
    if isinstance(value, list):
        return [hide(item, (*place, str(index))) for index, item in enumerate(value)]
    return value


def _marked(value: Any) -> Any:
    if isinstance(value, dict):
        return dict.fromkeys(value, "HUSH")
    if isinstance(value, list):
        return [_marked(item) for item in value]
    return "HUSH" if isinstance(value, str) else "HUSH HUSH"


secret_trees = st.fixed_dictionaries(
    {},
    optional={
        "gateway": st.fixed_dictionaries({"keys": trees}),
        "control": st.fixed_dictionaries({"admin_key": trees}),
        "redis": st.fixed_dictionaries({"url": trees}),
        "localai": st.fixed_dictionaries({"api_key": trees, "backends": st.lists(trees)}),
    },
)


@anything
@given(document=secret_trees)
def test_secrets_never_show(path: Path, document: dict[str, Any]) -> None:
    path.write_text(as_yaml(hide(document, ())), encoding="utf-8")
    shown = ""
    try:
        loaded = load_settings({"HOME": "/home/op"}, path)
        shown = repr((loaded, entries(loaded), loaded.notices))
    except Invalid as error:
        shown = str(error)
    assert shown
    assert "HUSH" not in shown


values = st.text(alphabet=[*string.printable, "\x00", "ß", "\udc80"], max_size=30)


@given(
    environ=st.dictionaries(
        st.one_of(
            st.sampled_from([*variable_names(), "HEADSTART_TIME_SCALE", "HEADSTART_TIME_ANCHOR"]),
            st.sampled_from(["HEADSTART_ADMIN_KEY_FILE", "LOCALAI_PRELOAD_MODELS"]),
            st.text(max_size=10).map("HEADSTART_".__add__),
        ),
        values,
        max_size=8,
    )
)
def test_any_environment(environ: dict[str, str]) -> None:
    check({"HOME": "/home/op"} | environ, None)
