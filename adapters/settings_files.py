"""Which files make a configuration, and several of them read as one.

Beside ``headstart.yaml`` the files of ``headstart.d`` are read, in the order of their names;
``HEADSTART_CONFIG`` may name several files, or a folder of them. Sections are merged key by key,
models by their names, and where two files say something else the later one stands, which is told.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.settings_environment import CONFIG_VARIABLE
from adapters.settings_merge import name_models
from adapters.settings_problems import Problems, printable
from adapters.settings_source import KeyPath, Source, read_file, read_yaml
from adapters.settings_validation import said
from contracts.errors import Invalid

FILE_NAME = "headstart.yaml"
DROP_IN_SUFFIX = ".d"
MAX_FILES = 64

_SUFFIXES = frozenset({".yaml", ".yml"})


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """The files of one configuration.

    Attributes
    ----------
    main : Path or None
        What was named or found: a file, or a folder of files; None: there is none.
    parts : tuple of Path
        The files to read, in their order.
    folder : Path or None
        Where further files may come to lie.
    """

    main: Path | None
    parts: tuple[Path, ...] = ()
    folder: Path | None = None

    @property
    def watched(self) -> tuple[Path, ...]:
        """What changes when the configuration does."""
        return self.parts if self.folder is None else (*self.parts, self.folder)

    @property
    def base(self) -> Path:
        """Where relative paths start that stand in the files."""
        if self.main is None:
            return Path()
        main = self.main.absolute()
        return main if main.is_dir() else main.parent


def find_files(environ: Mapping[str, str], path: Path | None = None) -> ConfigFiles:
    """The files that ``load_settings`` reads."""
    named = _named(environ)
    if path is not None and path not in named[:1]:
        named = (path,)
    if not named:
        found = _in_usual_places(environ)
        named = () if found is None else (found,)
    if not named:
        return ConfigFiles(None)
    main = named[0]
    if main.is_dir():
        return ConfigFiles(main, _files_in(main), main)
    drop_ins = main.with_suffix(DROP_IN_SUFFIX)
    folder = drop_ins if drop_ins.is_dir() else None
    more = () if folder is None else _files_in(folder)
    return ConfigFiles(main, (*named, *more)[:MAX_FILES], folder)


def read_files(files: ConfigFiles, problems: Problems, notices: list[str]) -> Source:
    """All of them as one; what is wrong with one does not keep the others from being read."""
    if files.main is not None and not files.parts:
        notices.append(printable(f"{files.main}: holds no .yaml file, so all defaults hold"))
    merged = Source()
    for index, path in enumerate(files.parts):
        try:
            data = read_file(path)
            if index and not data.strip():
                continue  # a drop-in that somebody emptied
            source = read_yaml(data, str(path), problems, names_are_text=True)
            if isinstance(source.values.get("models"), list):
                source = name_models(source, problems)
        except Invalid as error:
            problems.add_all(error)
            continue
        if not source.values:
            notices.append(printable(f"{path}: sets nothing, so all defaults hold"))
        merged = overlaid(merged, source, notices)
    return merged


def overlaid(below: Source, above: Source, notices: list[str]) -> Source:
    """``above`` over ``below``; a section that is empty in it changes nothing."""
    replaced: set[KeyPath] = set()
    values = _overlay(below, above, (), replaced, notices)
    kept = {
        place: origin
        for place, origin in below.origins.items()
        if not any(place[: len(gone)] == gone for gone in replaced)
    }
    return Source(values, kept | above.origins)


def _overlay(
    below: Source, above: Source, place: KeyPath, replaced: set[KeyPath], notices: list[str]
) -> dict[str, Any]:
    low, high = _at(below.values, place), _at(above.values, place)
    result = dict(low)
    for name, value in high.items():
        here = (*place, name)
        known = result.get(name)
        if isinstance(known, dict) and isinstance(value, dict):
            result[name] = _overlay(below, above, here, replaced, notices)
        elif value is None and isinstance(known, dict | list):
            continue  # a section whose keys are all commented out
        else:
            if name in result and known != value:
                notices.append(
                    printable(
                        f"{said(here)}: {above.origins[here]} stands over {below.origins[here]}"
                    )
                )
            if name in result:
                replaced.add(here)
            result[name] = value
    return result


def _at(values: Mapping[str, Any], place: KeyPath) -> Mapping[str, Any]:
    section: Any = values
    for name in place:
        section = section[name]
    found: Mapping[str, Any] = section
    return found


def _named(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """What ``HEADSTART_CONFIG`` names: one path, or several with the system's separator."""
    text = environ.get(CONFIG_VARIABLE, "").strip()
    if not text:
        return ()
    if Path(text).exists():
        return (Path(text),)
    return tuple(Path(part.strip()) for part in text.split(os.pathsep) if part.strip())


def _in_usual_places(environ: Mapping[str, str]) -> Path | None:
    home = environ.get("HOME", "").strip()
    own = environ.get("XDG_CONFIG_HOME", "").strip() or (f"{home}/.config" if home else "")
    folders = [Path(), *([Path(own) / "headstart"] if own else []), Path("/etc/headstart")]
    return next((folder / FILE_NAME for folder in folders if (folder / FILE_NAME).is_file()), None)


def _files_in(folder: Path) -> tuple[Path, ...]:
    """``*.yaml`` and ``*.yml`` by name; no backup, and nothing that begins with a dot."""
    try:
        found = sorted(
            path
            for path in folder.iterdir()
            if path.suffix.lower() in _SUFFIXES and not path.name.startswith(".")
        )
    except OSError as error:
        raise Invalid(f"{folder}: cannot be read: {error.strerror}") from error
    return tuple(found[:MAX_FILES])
