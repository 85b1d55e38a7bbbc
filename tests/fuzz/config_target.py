"""Configuration: settings, or lines that name place, key, value and what is allowed."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from adapters.import_compose import is_compose, merged_compose, sidecar
from adapters.import_parts import as_yaml
from adapters.imports import imported
from adapters.settings import Settings, load_settings
from adapters.settings_environment import variable_names
from adapters.settings_keys import ANY_NAME, known_keys
from adapters.settings_listing import entries
from adapters.settings_problems import MAX_PROBLEMS, Problems
from adapters.settings_source import read_document
from contracts.errors import Invalid
from tests.fuzz.target import Check, Target, mutated

HOME = {"HOME": "/home/op"}
NAMES = sorted({part for path in known_keys() for part in path if part != ANY_NAME})
SECTIONS = sorted({path[0] for path in known_keys()})

NAME = st.sampled_from([*NAMES, *SECTIONS])
ODD_KEY = st.sampled_from(
    [
        "1",
        "null",
        "~",
        "true",
        "1.5",
        "0x10",
        ".inf",
        '""',
        "''",
        '"1"',
        "'null'",
        "<<",
        "? [a]",
        "a b",
    ]
)
MODEL_NAME = st.sampled_from(
    [
        "llama",
        "org/m:7b",
        "a.b",
        '"größe 🚀"',
        '"\\u202e"',
        '"a\\nb"',
        '"\\0"',
        "..",
        '"--x"',
        "e\u0301",
    ]
)
SCALAR = st.sampled_from(
    [
        *(
            "null",
            "true",
            "off",
            "0",
            "1",
            "-1",
            "8080",
            "1e9",
            ".nan",
            ".inf",
            '"x"',
            "8Gi",
            "1h",
            "15m",
        ),
        *(
            "http://localai:8080",
            "redis://:p@h:1/0",
            "active",
            "observe",
            '"0 3 * * *"',
            "Europe/Berlin",
        ),
        *(
            "9" * 400,
            '"\\ud800"',
            '"\\x1b[31m"',
            "!!python/object:os.system x",
            "*a",
            "&a x",
            "{}",
            "[]",
        ),
        *(
            "[1, a, null]",
            "{a: b}",
            "0o17",
            "2001-01-01",
            "1_000",
            "=",
            "@x",
            "`",
            "'it''s'",
            "|\n   x",
        ),
    ]
)


PLAIN = st.sampled_from(["{}", "{}", "{pinned: true}", ""])


def _block(key: str, value: str, depth: int) -> str:
    return f"{'  ' * depth}{key}: {value}"


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    lines: list[str] = []
    for _ in range(draw(st.integers(0, 4))):
        section = draw(st.sampled_from([*SECTIONS, "models", "models"]))
        head = draw(st.sampled_from(["", "", "", "", "&a", "*a", "[1]", "x"]))
        lines.append(_block(section, head, 0))
        for _ in range(draw(st.integers(0, 3))):
            inner = MODEL_NAME | ODD_KEY if section == "models" else NAME | ODD_KEY
            lines.append(_block(draw(inner), draw(PLAIN | SCALAR), 1))
            inner_keys = draw(st.lists(st.tuples(NAME | ODD_KEY, SCALAR), max_size=2))
            lines += [_block(key, value, 2) for key, value in inner_keys]
    text = "\n".join(lines) + "\n"
    coding = draw(st.sampled_from(["utf-8"] * 8 + ["utf-16", "utf-8-sig"]))
    return text.encode(coding, "surrogatepass")


FOREIGN = st.sampled_from(
    [
        "cmd: serve ${PORT} ${x} ${env.HOME}",
        "concurrencyLimit: 4",
        "concurrencyLimit: '4'",
        "concurrencyLimit: true",
        "ttl: 5m",
        "ttl: soon",
        "aliases: [a, 1, null]",
        "aliases: a",
        "proxy: http://h:1",
        "proxy: 'http://[::1'",
        "macros: {x: '${y}', y: '${x}'}",
        "macros: [1]",
        "unlisted: true",
        "members: [m, 7]",
        "members: m",
        "persistent: soon",
        "image: quay.io/go-skynet/local-ai:latest",
        "ports: ['8080:8080', {published: 1}, 9, '99999:1', '[::1]:80:80']",
        "environment: {LOCALAI_UPLOAD_LIMIT: 1000, LOCALAI_PARALLEL_LOAD: 0.5}",
        "environment: [LOCALAI_MODEL_CACHE_SIZE=x, 'LOCALAI_PRELOAD_MODELS=a,,b']",
        "environment: {LOCALAI_UPLOAD_LIMIT: " + "9" * 400 + "}",
        "environment: {LOCALAI_MODEL_CACHE_SIZE: 9e9, LOCALAI_PARALLEL_LOAD: 1h}",
        "environment: 7",
        "devices: [/dev/kfd, 1]",
        "devices: x",
        "volumes: ['./m:/models', {source: 1}]",
        "volumes: 5",
        "command: [run, x, '--y']",
        "command: run",
        "name: m",
        "name: 7",
        "parameters: {model: ../../x}",
        "parameters: 5",
        "slots: 4",
        "slots: x",
        "pinned: soon",
        "scheduling_profile: {priority_class: high}",
        "scheduling_profile: 5",
        "backend: llama-cpp",
        "url: http://x",
        "deploy: 1",
    ]
)


@st.composite
def foreign(draw: st.DrawFn) -> bytes:
    """Files of other programs, and what is almost one."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        top = draw(st.sampled_from(["models", "models", "services", "groups", "macros", "hooks"]))
        lines.append(f"{top}:" + draw(st.sampled_from(["", "", "", "", "", " 5", " [a]", " null"])))
        first = {"models": "cmd: x", "services": "image: localai/localai"}.get(top, "members: [m]")
        for _ in range(draw(st.integers(0, 2))):
            lines.append(f"  {draw(MODEL_NAME | ODD_KEY | st.just('m'))}:")
            said = [first] * draw(st.integers(0, 1)) + draw(st.lists(FOREIGN, max_size=4))
            lines += [f"    {line}" for line in said]
    lines += draw(
        st.lists(
            st.sampled_from(
                [
                    "healthCheckTimeout: 5",
                    "healthCheckTimeout: soon",
                    "healthCheckTimeout: .inf",
                    "apiKeys: [a]",
                    "globalTTL: 5",
                    "startPort: 5800",
                    "1: x",
                    "null: x",
                    "name: m",
                    "slots: 4",
                    "backend: x",
                ]
            ),
            max_size=2,
        )
    )
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


def _load(environ: dict[str, str], path: Path | None) -> Settings | None:
    """The settings; None where they are refused, in lines that people can read."""
    refused = ""
    try:
        loaded = load_settings(HOME | environ, path)
    except Invalid as error:
        refused = str(error)
        loaded = None
    if loaded is None:
        lines = refused.splitlines()
        assert 1 <= len(lines) <= MAX_PROBLEMS + 1
        for line in lines:
            assert line.isprintable()
            assert len(line) < 2_000
            assert ": " in line or line.startswith("… and ")
        return None
    assert loaded.gateway_config().nodes
    assert loaded.control_config().port
    assert loaded.controller_config().planner.window_s > 0
    assert loaded.predictor_config().publish_s > 0
    assert loaded.workers_config().max_processes > 0
    assert json.dumps([(entry.key, entry.value, entry.origin) for entry in entries(loaded)])
    assert all(notice.isprintable() for notice in loaded.notices)
    return loaded


def _keys(value: Any, depth: int = 0) -> Iterator[object]:
    if isinstance(value, dict) and depth < 10:
        for key, inner in value.items():
            yield key
            yield from _keys(inner, depth + 1)
    elif isinstance(value, list) and depth < 10:
        for inner in value:
            yield from _keys(inner, depth + 1)


def _constructed(data: bytes) -> Any:
    """What another reader of YAML makes of it; None where it cannot, or where it is too large."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return YAML(typ="safe", pure=True).load(data.decode("utf-8-sig"))
    except (YAMLError, ValueError, TypeError, AttributeError, LookupError, AssertionError):
        return None
    except (RecursionError, NotImplementedError, ArithmeticError):
        return None


@contextmanager
def _with_file() -> Iterator[Check]:
    with tempfile.TemporaryDirectory(prefix="hs-") as folder:
        path = Path(folder) / "headstart.yaml"

        def check(data: bytes) -> None:
            path.write_bytes(data)
            loaded = _load({}, path)
            if loaded is None:
                return
            document = _constructed(data)
            assert all(isinstance(key, str) for key in _keys(document)), "a key that is no text"

        yield check


@contextmanager
def _importing() -> Iterator[Check]:
    with tempfile.TemporaryDirectory(prefix="hs-") as folder:
        path = Path(folder) / "headstart.yaml"

        def check(data: bytes) -> None:
            problems = Problems()
            try:
                document = read_document(data, "theirs.yaml", problems)
            except Invalid:
                return
            found = imported(document, "theirs.yaml", {"x": "y"})
            assert all(note.isprintable() and len(note) < 2_000 for note in found.notes)
            text = as_yaml(found.values)
            if found.values:
                path.write_text(text)
                assert _load({}, path) is not None, f"what was imported is refused:\n{text}"
            else:
                assert found.notes, "nothing was taken, and nothing is said"
            assert _told(document, found.notes, text), "something was dropped and not told"
            if is_compose(document):
                assert as_yaml(sidecar(merged_compose([document])))

        yield check


def _told(document: Any, notes: list[str], text: str) -> bool:
    """Whether each limit that is set is taken over or spoken of."""
    models = document.get("models") if isinstance(document, dict) else None
    if not isinstance(models, dict):
        return True
    if not any(isinstance(entry, dict) and "cmd" in entry for entry in models.values()):
        return True
    said = " ".join(notes)
    for name, entry in models.items():
        if not isinstance(entry, dict):
            if f"models.{name}" not in said:
                return False
        elif "concurrencyLimit" in entry and "concurrencyLimit" not in said:
            if "slots" not in text:
                return False
        elif "ttl" in entry and "ttl" not in said:
            return False
    return "healthCheckTimeout" not in document or any(
        word in said + text for word in ("healthCheckTimeout", "load_timeout_seconds")
    )


VARIABLES = sorted([*variable_names(), "HEADSTART_TIME_SCALE", "HEADSTART_TIME_ANCHOR"])
VARIABLE = st.sampled_from([*VARIABLES, "LOCALAI_PRELOAD_MODELS", "HEADSTART_ADMIN_KEY_FILE"])
LINE = st.tuples(
    VARIABLE
    | st.sampled_from(
        ["HEADSTART_", "HEADSTART_X", "HEADSTART_GATEWAY_PROT", "HEADSTART_MODELS__A"]
    ),
    SCALAR
    | st.text(max_size=12)
    | st.sampled_from(["/", "/dev/zero", "/proc/self/mem", "a,b,,c", " "]),
).map("=".join)


def check_environment(data: bytes) -> None:
    """Any variables: settings, or lines that name the variable."""
    environ = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        name, mark, value = line.partition("=")
        if mark and name and "\x00" not in line:
            environ[name] = value
    environ.pop("HEADSTART_CONFIG", None)
    _load(environ, None)


TARGETS = (
    Target("config", documents() | mutated(documents()), prepare=_with_file, short=30),
    Target("import", foreign() | mutated(foreign()), prepare=_importing, short=40),
    Target(
        "environment",
        st.lists(LINE, max_size=5).map(
            lambda lines: "\n".join(lines).encode("utf-8", "surrogateescape")
        ),
        check_environment,
        short=30,
    ),
)
