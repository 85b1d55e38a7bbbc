"""Which files a LocalAI model file names, and which of them can lie in the models folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import PurePosixPath, PureWindowsPath

MAX_FILES = 64
_ADDRESS = re.compile(r"[a-z][a-z0-9+.\-]*://|github:|hf:|oci:|ollama:", re.IGNORECASE)
_BUNDLED = "bundled:"

_SINGLE = ("mmproj", "draft_model", "lora_adapter", "lora_base")
_LISTS = ("lora_adapters",)


class WeightsPlace(StrEnum):
    """Where the name of a file leads to."""

    FOLDER = "folder"
    """Below the models folder, if it is there: a hub's name looks the same."""
    ELSEWHERE = "elsewhere"
    """An address that LocalAI fetches, or what comes with a backend: its size is not known."""
    INVALID = "invalid"
    """Out of the models folder: LocalAI itself refuses the whole model file for it."""


def place_of(name: str) -> WeightsPlace:
    """What kind of name it is.

    >>> place_of("sub/dir/x.gguf"), place_of("../x"), place_of("huggingface://o/r/f.gguf")
    (<WeightsPlace.FOLDER: 'folder'>, <WeightsPlace.INVALID: 'invalid'>, \
<WeightsPlace.ELSEWHERE: 'elsewhere'>)
    """
    if _ADDRESS.match(name) or name.startswith(_BUNDLED):
        return WeightsPlace.ELSEWHERE
    path = PurePosixPath(name)
    if path.is_absolute() or PureWindowsPath(name).drive or ".." in path.parts or "\0" in name:
        return WeightsPlace.INVALID
    return WeightsPlace.FOLDER


def named_files(config: Mapping[str, object]) -> tuple[str, ...]:
    """Every file that the model's configuration names, in its order, each once; bounded."""
    return tuple(dict.fromkeys(_names(config)))[:MAX_FILES]


def local_weights(config: Mapping[str, object]) -> tuple[str, ...]:
    """Those that may lie in the models folder."""
    return tuple(name for name in named_files(config) if place_of(name) is WeightsPlace.FOLDER)


def _names(config: Mapping[str, object]) -> Iterator[str]:
    parameters = config.get("parameters")
    if isinstance(parameters, Mapping):
        yield from _text(parameters.get("model"))
    for key in _SINGLE:
        yield from _text(config.get(key))
    for key in _LISTS:
        listed = config.get(key)
        for item in listed if isinstance(listed, list) else ():
            yield from _text(item)


def _text(value: object) -> Iterator[str]:
    if isinstance(value, str) and value.strip():
        yield value.strip()
