"""LocalAI's models folder, read as LocalAI reads it: which models it configures, and what is odd.

Only ``*.yaml`` and ``*.yml`` in the folder itself are read, in any case; no backup, no file that
begins with a dot, no folder below. A file holds one model or a list of them; one without a name
is told and left out, and so is a file that is no model (an index of a gallery, other data).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.model_profiles import own_modality
from adapters.model_weights import WeightsPlace, named_files, place_of
from adapters.settings_problems import Problems, printable, shown
from adapters.settings_source import read_document, read_file
from contracts.errors import Invalid
from contracts.ids import ModelId
from contracts.modalities import Modality

SUFFIXES = frozenset({".yaml", ".yml"})
MAX_MODEL_FILES = 5_000
MAX_NOTES = 200

_OF_A_GALLERY = ("url", "overrides", "config_file", "urls")
_OF_A_MODEL = frozenset(
    {"parameters", "backend", "embeddings", "reranking", "known_usecases", "alias", "pipeline"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsFile:
    """One file that a model names; ``size_bytes`` is None where it is not there, or elsewhere."""

    name: str
    place: WeightsPlace
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderModel:
    """One model as its file configures it."""

    model: ModelId
    file: str
    config: Mapping[str, Any]
    modality: Modality | None
    weights: tuple[WeightsFile, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether LocalAI takes it: not where a file leads out of the models folder."""
        return all(one.place is not WeightsPlace.INVALID for one in self.weights)

    @property
    def size_bytes(self) -> int | None:
        """Of all its files; None: not known of one of them, or it names none."""
        sizes = [one.size_bytes for one in self.weights]
        known = [size for size in sizes if size is not None]
        return sum(known) if known and len(known) == len(sizes) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderReading:
    """What was found; ``notes`` are lines for people about what was left out, and why."""

    models: tuple[FolderModel, ...]
    notes: tuple[str, ...]


def read_folder(folder: Path) -> FolderReading:
    """Every model of the folder by name; the first file stands where two name one model.

    Raises
    ------
    Invalid
        The folder cannot be read.
    """
    try:
        names = sorted(path.name for path in folder.iterdir() if is_model_file(path))
    except OSError as error:
        raise Invalid(f"{folder}: cannot be read: {error.strerror}") from error
    notes: list[str] = []
    if len(names) > MAX_MODEL_FILES:
        notes.append(f"{folder}: only the first {MAX_MODEL_FILES} model files are read")
    models: dict[ModelId, FolderModel] = {}
    for name in names[:MAX_MODEL_FILES]:
        for found in read_model_file(folder / name, notes):
            known = models.setdefault(found.model, found)
            if known is not found:
                notes.append(f"{name}: {shown(found.model)} is configured in {known.file} already")
    return FolderReading(
        models=tuple(models[name] for name in sorted(models)), notes=_bounded(notes)
    )


def is_model_file(path: Path) -> bool:
    """Whether LocalAI would read it as a model file."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def read_model_file(path: Path, notes: list[str]) -> tuple[FolderModel, ...]:
    """The models of one file; what is odd about it goes to ``notes``."""
    problems = Problems()
    try:
        document = read_document(read_file(path), path.name, problems)
    except Invalid as error:
        notes.append(str(error))
        return ()
    notes.extend(problems.lines)
    return models_in(document, path.name, path.parent, notes)


def models_in(
    document: object, name: str, folder: Path | None, notes: list[str]
) -> tuple[FolderModel, ...]:
    """The models of a file's value; sizes are looked up where there is a folder."""
    entries = document if isinstance(document, list) else [document]
    if is_gallery(entries):
        notes.append(
            f"{name}: is an index of a gallery with {len(entries)} entries, not a model file"
        )
        return ()
    found = []
    for index, entry in enumerate(entries):
        where = f"{name}[{index}]" if isinstance(document, list) else name
        if entry is None:
            continue
        if not isinstance(entry, dict):
            notes.append(f"{where}: is no model")
            continue
        model = _model_of(entry, where, name, folder, notes)
        if model is not None:
            found.append(model)
    return tuple(found)


def is_gallery(entries: list[Any]) -> bool:
    """Whether these are entries of a gallery: addresses of model files, not models."""
    mappings = [entry for entry in entries if isinstance(entry, dict)]
    return bool(mappings) and all(
        any(key in entry for key in _OF_A_GALLERY) and "parameters" not in entry
        for entry in mappings
    )


def _model_of(
    entry: dict[str, Any], where: str, file: str, folder: Path | None, notes: list[str]
) -> FolderModel | None:
    name = entry.get("name")
    if not isinstance(name, str) or not name.strip():
        is_one = any(key in entry for key in _OF_A_MODEL)
        notes.append(f"{where}: has no name" if is_one else f"{where}: is no model")
        return None
    weights = tuple(_weights(entry, folder))
    notes.extend(
        f"{where}: {shown(name)} names {shown(one.name)}, which is out of the models folder: "
        "LocalAI refuses the model"
        for one in weights
        if one.place is WeightsPlace.INVALID
    )
    return FolderModel(
        model=ModelId(name),
        file=file,
        config=entry,
        modality=own_modality(name, entry),
        weights=weights,
    )


def _weights(entry: Mapping[str, Any], folder: Path | None) -> Iterator[WeightsFile]:
    for name in named_files(entry):
        place = place_of(name)
        size = None
        if folder is not None and place is WeightsPlace.FOLDER:
            size = _size_bytes(folder / name)
        yield WeightsFile(name=name, place=place, size_bytes=size)


def _size_bytes(path: Path) -> int | None:
    try:
        if path.is_dir():
            return sum(each.stat().st_size for each in path.iterdir() if each.is_file())
        return path.stat().st_size
    except (OSError, ValueError):
        return None  # not fetched yet, or not ours to see


def _bounded(notes: list[str]) -> tuple[str, ...]:
    rest = len(notes) - MAX_NOTES
    kept = tuple(printable(note) for note in notes[:MAX_NOTES])
    return (*kept, f"… and {rest} more") if rest > 0 else kept
