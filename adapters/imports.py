"""Configurations of other programs → a part of ``headstart.yaml``: which kind a file is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adapters.import_compose import import_compose, is_compose, merged_compose
from adapters.import_parts import Imported, bounded, merged
from adapters.import_swap import import_swap, is_swap_config
from adapters.model_advice import advice_on
from adapters.model_files import FolderModel, is_gallery, models_in, read_folder
from adapters.settings_keys import names_in
from adapters.settings_problems import Problems, printable
from adapters.settings_source import read_document, read_file
from contracts.errors import Invalid

OURS = ("scheduling_profile", "preload", "pinned", "slots")


def import_paths(paths: list[Path], environ: Mapping[str, str]) -> tuple[Imported, Any]:
    """What all of them give together, and the compose file they make (None: there is none).

    Raises
    ------
    Invalid
        A file cannot be read.
    """
    parts: list[Imported] = []
    compose: list[Mapping[str, Any]] = []
    for path in paths:
        if path.is_dir():
            parts.append(_of_models(read_folder(path).models, list(read_folder(path).notes)))
            continue
        problems = Problems()
        document = read_document(read_file(path), path.name, problems)
        found = imported(document, path.name, environ, folder=path.parent)
        for line in problems.lines:
            found.note(line)
        if is_compose(document):
            compose.append(document)
        else:
            parts.append(found)
    whole = merged_compose(compose) if compose else None
    if whole is not None:
        parts.insert(0, import_compose(whole, environ))
    result = merged(parts)
    result.notes = list(bounded(result.notes))
    return result, whole


def imported(
    document: object, name: str, environ: Mapping[str, str], *, folder: Path | None = None
) -> Imported:
    """What one file's value gives. Nothing that it is not made for stops it."""
    if document is None:
        return _nothing(f"{name}: is empty")
    if is_compose(document):
        assert isinstance(document, Mapping)
        return import_compose(merged_compose([document]), environ)
    if is_swap_config(document):
        assert isinstance(document, Mapping)
        return import_swap(document, environ)
    if isinstance(document, Mapping) and set(document) & set(names_in(())):
        return _nothing(f"{name}: is a headstart.yaml already: put it into headstart.d")
    if not isinstance(document, dict | list):
        return _nothing(f"{name}: is nothing that can be imported")
    notes: list[str] = []
    models = models_in(document, name, folder, notes)
    entries = document if isinstance(document, list) else [document]
    kind = "an index of a gallery" if is_gallery(entries) else "LocalAI's model files"
    return _of_models(models, notes, kind)


def _of_models(
    models: tuple[FolderModel, ...], notes: list[str], kind: str = "LocalAI's model files"
) -> Imported:
    """Our own keys of LocalAI's files. The rest stays there, where LocalAI and we read it."""
    result = Imported(kind)
    for line in notes:
        result.note(line)
    for model in models:
        for line in advice_on(model.config):
            result.note(f"{model.model}: {line}")
        ours = {key: model.config[key] for key in OURS if key in model.config}
        if ours and model.is_valid and result.takes_name(model.file, str(model.model)):
            for key, value in ours.items():
                result.put("models", str(model.model), key, value)
        elif ours and not model.is_valid:
            names = ", ".join(ours)
            result.note(f"{model.model}: {names} not taken: LocalAI refuses the model")
    if models:
        result.note(
            f"{len(models)} models are LocalAI's: they are read from LocalAI itself and need no "
            "entry here; what stands under models changes only what Headstart does with them"
        )
    return result


def _nothing(note: str) -> Imported:
    result = Imported("nothing known")
    result.note(printable(note))
    return result


__all__ = ["Imported", "Invalid", "import_paths", "imported"]
