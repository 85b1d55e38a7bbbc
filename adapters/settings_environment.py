"""Settings from environment variables: which there are, and what they say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapters.clock import ANCHOR_VARIABLE, ENVIRONMENT_VARIABLE, SCALE_VARIABLE
from adapters.localai_discovery import HOSTS_VARIABLE
from adapters.settings_keys import Key, known_keys
from adapters.settings_problems import Problems, nearest, printable
from adapters.settings_source import KeyPath, Source, read_file
from contracts.errors import Invalid

PREFIX = "HEADSTART_"
CONFIG_VARIABLE = "HEADSTART_CONFIG"
PRELOAD_VARIABLE = "LOCALAI_PRELOAD_MODELS"
FILE_SUFFIX = "_FILE"
MAX_NOTICES = 20

SHORT_NAMES: Mapping[str, KeyPath] = {
    "HEADSTART_DATA_DIR": ("data_dir",),
    "HEADSTART_GATEWAY_HOST": ("gateway", "host"),
    "HEADSTART_GATEWAY_PORT": ("gateway", "port"),
    "HEADSTART_CONTROL_HOST": ("control", "host"),
    "HEADSTART_CONTROL_PORT": ("control", "port"),
    "HEADSTART_GATEWAY_KEYS": ("gateway", "keys"),
    "HEADSTART_LOCALAI_URL": ("localai", "url"),
    "HEADSTART_LOCALAI_API_KEY": ("localai", "api_key"),
    "HEADSTART_REDIS_URL": ("redis", "url"),
    "HEADSTART_REDIS_JOBS_URL": ("redis", "jobs_url"),
    "HEADSTART_ADMIN_KEY": ("control", "admin_key"),
}
"""Names beside ``HEADSTART_<SECTION>__<KEY>``."""

FOREIGN_NAMES: Mapping[str, KeyPath] = {
    "REDIS_URL": ("redis", "url"),
    "LOCALAI_MODEL_CACHE_SIZE": ("optimization", "cache_size_gb"),
    "LOCALAI_PARALLEL_LOAD": ("scheduler", "parallel_loads"),
}
"""Names that people set already; ours win over them."""

PROCESS_NAMES = frozenset(
    {CONFIG_VARIABLE, SCALE_VARIABLE, ANCHOR_VARIABLE, ENVIRONMENT_VARIABLE, HOSTS_VARIABLE}
)
"""What is about the process and not a key of the file."""

_TRUE = frozenset({"true", "1", "yes", "on", "all"})
_FALSE = frozenset({"false", "0", "no", "off", "none"})


@dataclass(slots=True)
class Environment:
    """What the environment says.

    Attributes
    ----------
    source : Source
        Values of keys, with the variable that each came from.
    preload : bool, tuple of str or None
        True: models with ``preload: true``; False: none; names: those; None: not said.
    notices : list of str
        Variables that look like ours but are not known.
    """

    source: Source = field(default_factory=Source)
    preload: bool | tuple[str, ...] | None = None
    notices: list[str] = field(default_factory=list)


def variable_names() -> Mapping[str, KeyPath]:
    """Every variable that sets a key, with that key; later ones win over earlier ones."""
    generic = {key.variable: key.path for key in known_keys().values() if key.variable}
    return {**FOREIGN_NAMES, **SHORT_NAMES, **generic}


def read_environment(environ: Mapping[str, str], problems: Problems) -> Environment:
    """Values from the environment; an empty variable counts as not set."""
    result = Environment()
    said_by: dict[KeyPath, str] = {}
    for name, path in variable_names().items():
        key = known_keys()[path]
        value = _value_of(environ, name, key, problems)
        if value is None:
            continue
        earlier = said_by.get(path)
        if earlier is not None and earlier.startswith(PREFIX):
            if _at(result.source.values, path) != value:
                problems.add(name, f"says something else than {earlier}; set one of them")
            continue
        said_by[path] = name
        _put(result.source, path, value, name)
    result.preload = _preload(environ)
    result.notices = list(_unknown(environ))[:MAX_NOTICES]
    return result


def _value_of(environ: Mapping[str, str], name: str, key: Key, problems: Problems) -> Any:
    """The value of one variable, or of the file that ``<name>_FILE`` names."""
    text = environ.get(name, "").strip()
    by_file = environ.get(name + FILE_SUFFIX, "").strip() if key.is_secret else ""
    said = None
    if text:
        said = _items(text.split(",")) if key.is_list else text
    if not by_file:
        return said
    value = _secret_from(by_file, name + FILE_SUFFIX, key, problems)
    if None not in (said, value) and said != value:
        problems.add(name, f"says something else than {name}{FILE_SUFFIX}; set one of them")
    return value


def _secret_from(path: str, name: str, key: Key, problems: Problems) -> Any:
    try:
        text = read_file(Path(path)).decode("utf-8").strip()
    except Invalid as error:
        problems.add(name, str(error))
        return None
    except UnicodeDecodeError:
        problems.add(name, f"{path}: is not UTF-8 text")
        return None
    if not text:
        problems.add(name, f"{path}: is empty")
        return None
    return _items(text.splitlines()) if key.is_list else text


def _items(parts: list[str]) -> list[str]:
    return [part.strip() for part in parts if part.strip()]


def _preload(environ: Mapping[str, str]) -> bool | tuple[str, ...] | None:
    text = environ.get(PRELOAD_VARIABLE, "").strip()
    if not text:
        return None
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    return tuple(dict.fromkeys(_items(text.split(","))))


def _unknown(environ: Mapping[str, str]) -> Iterator[str]:
    names = variable_names()
    secret_files = {
        name + FILE_SUFFIX for name, path in names.items() if known_keys()[path].is_secret
    }
    known = {n for n in {*names, *secret_files} if n.startswith(PREFIX)} | PROCESS_NAMES
    in_file_only = tuple(f"{PREFIX}{section}__" for section in ("MODELS", "RESOURCES"))
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known:
            continue
        guess = nearest(name.removeprefix(PREFIX), (n.removeprefix(PREFIX) for n in known))
        if name.startswith(in_file_only):
            hint = "models and resources are set in the file"
        elif guess is not None:
            hint = f"did you mean {PREFIX}{guess}?"
        else:
            hint = "it has no effect"
        yield printable(f"{name} is not known: {hint}")


def _put(source: Source, path: KeyPath, value: Any, name: str) -> None:
    section = source.values
    for part in path[:-1]:
        section = section.setdefault(part, {})
    section[path[-1]] = value
    source.origins[path] = name


def _at(values: Mapping[str, Any], path: KeyPath) -> Any:
    value: Any = values
    for part in path:
        value = value[part]
    return value
