"""Keys that lie elsewhere: in files and variables that the configuration names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from adapters.settings_environment import FILE_SUFFIX, PREFIX, variable_names
from adapters.settings_keys import known_keys
from adapters.settings_problems import Problems
from adapters.settings_source import KeyPath, Source, read_file
from adapters.settings_validation import said
from contracts.errors import Invalid

_KEY, _FILE, _ENV = "api_key", "api_key_file", "api_key_env"


def resolve_keys(
    merged: Source, environ: Mapping[str, str], base: Path, problems: Problems
) -> tuple[Path, ...]:
    """Put LocalAI's keys where ``api_key_file`` and ``api_key_env`` say they are into ``merged``.

    Returns the files that were named. ``base``: where relative paths start.
    """
    files = []
    for place, section in _sections(merged.values):
        if merged.origins.get((*place, _KEY), "").startswith(PREFIX):
            continue  # the environment wins over what the file says, also about other places
        ways = [name for name in (_KEY, _FILE, _ENV) if section.get(name) is not None]
        if len(ways) > 1:
            where = _origin(merged, (*place, ways[1]))
            problems.add(where, f"{said(place)}: {' and '.join(ways)}: set one of them")
            continue
        name = section.get(_FILE)
        if isinstance(name, str) and name.strip():
            files.append(base / name)
            _from_file(merged, (*place, _FILE), section, base / name, problems)
        variable = section.get(_ENV)
        if isinstance(variable, str):
            _from_variable(merged, (*place, _ENV), section, environ.get(variable, ""), problems)
    return tuple(files)


def secret_files(environ: Mapping[str, str]) -> Iterator[Path]:
    """The files that ``HEADSTART_…_FILE`` variables name."""
    keys = known_keys()
    for name, path in variable_names().items():
        named = environ.get(name + FILE_SUFFIX, "").strip() if keys[path].is_secret else ""
        if named:
            yield Path(named)


def _sections(values: Mapping[str, Any]) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    localai = values.get("localai")
    if not isinstance(localai, dict):
        return
    yield ("localai",), localai
    backends = localai.get("backends")
    for index, backend in enumerate(backends if isinstance(backends, list) else ()):
        if isinstance(backend, dict):
            yield ("localai", "backends", str(index)), backend


def _from_file(
    merged: Source, place: KeyPath, section: dict[str, Any], path: Path, problems: Problems
) -> None:
    where = _origin(merged, place)
    try:
        text = read_file(path).decode("utf-8").strip()
    except Invalid as error:
        problems.add(where, f"{said(place)}: {error}")
        return
    except UnicodeDecodeError:
        problems.add(where, f"{said(place)}: {path}: is not UTF-8 text")
        return
    if not text:
        problems.add(where, f"{said(place)}: {path}: is empty")
        return
    section[_KEY] = text
    merged.origins[*place[:-1], _KEY] = str(path)


def _from_variable(
    merged: Source, place: KeyPath, section: dict[str, Any], value: str, problems: Problems
) -> None:
    if not value.strip():
        problems.add(_origin(merged, place), f"{said(place)}: names a variable that is not set")
        return
    section[_KEY] = value.strip()
    merged.origins[*place[:-1], _KEY] = _origin(merged, place)


def _origin(merged: Source, place: KeyPath) -> str:
    return merged.origins.get(place, "default")
