"""Which models the emulated LocalAI knows: configurations, aliases, and their raw YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ruamel.yaml.error import YAMLError

from contracts.errors import Invalid
from emulator.models import EmulatedModel, dump_yaml, load_yaml, parse_model

MAX_REMOVED_FILES = 1_000

_QUANTISED = {"f16": 16.0, "q8_0": 8.5, "q6_k": 6.6, "q5_k_m": 5.7, "q4_k_m": 4.8, "q2_k": 3.0}
"""Bits of a weight by the end of a file's name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One configuration file: a model, or (``target`` set) an alias of one."""

    name: str
    text: str
    model: EmulatedModel | None
    target: str | None = None


class Catalog:
    """Configurations by name, in the order in which they came.

    Attributes
    ----------
    removed_files : list of str
        Weights that went with the last model that named them.
    """

    def __init__(self, models: tuple[EmulatedModel, ...]) -> None:
        self._entries: dict[str, Entry] = {}
        self.removed_files: list[str] = []
        for model in models:
            self._entries[model.name] = Entry(model.name, model.to_yaml(), model)
            for alias in model.aliases:
                self._entries[alias] = _alias(alias, model.name)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def names(self) -> tuple[str, ...]:
        """Everything that can be asked for, aliases included."""
        return tuple(self._entries)

    def entries(self) -> tuple[Entry, ...]:
        """Every configuration."""
        return tuple(self._entries.values())

    def models(self) -> tuple[EmulatedModel, ...]:
        """Every model, aliases left out."""
        return tuple(entry.model for entry in self._entries.values() if entry.model is not None)

    def get(self, name: str) -> Entry | None:
        """The configuration of that very name."""
        return self._entries.get(name)

    def model(self, name: str) -> EmulatedModel | None:
        """The model of that very name; None for an alias or an unknown name."""
        entry = self._entries.get(name)
        return None if entry is None else entry.model

    def resolve(self, name: str) -> str:
        """The model that a name leads to; unknown names lead to themselves."""
        entry = self._entries.get(name)
        return name if entry is None or entry.target is None else entry.target

    def aliases(self) -> dict[str, str]:
        """Target by alias, sorted by alias as LocalAI does."""
        pairs = {entry.name: entry.target for entry in self._entries.values()}
        return {name: pairs[name] or "" for name in sorted(pairs) if pairs[name] is not None}

    def first(self, usecase: str) -> EmulatedModel | None:
        """The model that a request without one gets: the first that can do it."""
        for entry in self._entries.values():
            model = entry.model
            if model is not None and usecase in model.usecases and not model.disabled:
                return model
        return None

    def put(self, document: Mapping[str, Any], *, text: str | None = None) -> Entry:
        """A configuration of LocalAI's own form, as import and edit write it.

        Raises
        ------
        Invalid
            With LocalAI's own words, when it makes no sense.
        """
        name = document.get("name")
        if not isinstance(name, str) or not name:
            raise Invalid("Name is required")
        if ".." in name:
            raise Invalid("Model path not trusted: path is outside of trusted root")
        target = document.get("alias")
        if isinstance(target, str) and target:
            entry = self._checked_alias(name, target)
        else:
            written = text if text is not None else dump_yaml(document)
            entry = Entry(name, written, model_of(document, self.model(name)))
        self._entries[name] = entry
        return entry

    def patch(self, name: str, changes: Mapping[str, Any]) -> Entry:
        """Merge keys into a configuration; KeyError for an unknown name."""
        entry = self._entries[name]
        document = _merge(load_yaml(entry.text), changes)
        return self.put(document)

    def set_flag(self, name: str, flag: str, *, on: bool) -> Entry:
        """Write ``pinned`` or ``disabled``; KeyError for an unknown name."""
        entry = self._entries[name]
        document = load_yaml(entry.text)
        document.pop(flag, None)
        if on:
            document[flag] = True
        model = entry.model
        if model is not None:
            model = replace(model, pinned=on) if flag == "pinned" else replace(model, disabled=on)
        self._entries[name] = Entry(name, dump_yaml(document), model, entry.target)
        return self._entries[name]

    def delete(self, name: str) -> None:
        """Take a configuration away, with weights that no other names; an unknown is no error."""
        entry = self._entries.pop(name, None)
        file = "" if entry is None else file_in(load_yaml(entry.text))
        named = {file_in(load_yaml(other.text)) for other in self._entries.values()}
        if file and file not in named and len(self.removed_files) < MAX_REMOVED_FILES:
            self.removed_files.append(file)

    def _checked_alias(self, name: str, target: str) -> Entry:
        aimed = self._entries.get(target)
        if aimed is None:
            raise Invalid(f'alias target "{target}" does not exist')
        if aimed.target is not None:
            raise Invalid(f'alias target "{target}" is itself an alias (chains are not allowed)')
        return _alias(name, target)


def model_of(document: Mapping[str, Any], known: EmulatedModel | None) -> EmulatedModel:
    """The emulated model that a LocalAI configuration stands for.

    Its ``emulator`` key holds what only an emulator knows; without it the model keeps what
    it had, or gets the defaults.
    """
    base = known or EmulatedModel(name=str(document["name"]))
    emulated = document.get("emulator")
    costs = emulated if isinstance(emulated, Mapping) else {}
    model = parse_model({"name": base.name, **_costs_of(base), **costs}, where="emulator")
    layers = document.get("gpu_layers", base.gpu_layers)
    return replace(
        with_file(model, file_in(document)),
        gpu_layers=layers if isinstance(layers, int) else None,
        aliases=base.aliases,
        pinned=bool(document.get("pinned", False)),
        disabled=bool(document.get("disabled", False)),
    )


def file_in(document: Mapping[str, Any]) -> str:
    """The weights that a configuration names; empty: none."""
    parameters = document.get("parameters")
    named = parameters.get("model") if isinstance(parameters, Mapping) else None
    return named if isinstance(named, str) else ""


def with_file(model: EmulatedModel, file: str) -> EmulatedModel:
    """The model with other weights: as much smaller as their quantisation is."""
    before, after = _bits(model.weights_file), _bits(file)
    if not model.weights or not file or file == model.weights_file:
        return model
    if before is None or after is None:
        return replace(model, file=file)
    footprint_mb = round(model.footprint_mb * after / before)
    load_s = model.load_s * after / before
    return replace(model, file=file, footprint_mb=footprint_mb, load_s=load_s)


def _bits(file: str) -> float | None:
    """How many bits a weight takes in a file of this name; None: it does not say."""
    words = file.lower().removesuffix(".gguf")
    return next((bits for word, bits in _QUANTISED.items() if words.endswith(word)), None)


def read_document(body: bytes, content_type: str) -> Mapping[str, Any]:
    """A configuration as JSON or YAML; Invalid when it is neither."""
    try:
        document = load_yaml(body.decode("utf-8"))
    except (YAMLError, UnicodeDecodeError) as error:
        raise Invalid(f"Failed to parse {content_type or 'body'}: {error}") from error
    if not isinstance(document, Mapping):
        raise Invalid("Name is required")
    return document


def _costs_of(model: EmulatedModel) -> dict[str, Any]:
    names = ("kind", "footprint_mb", "load_s", "parallel", "tokens_per_s", "first_token_s")
    costs = {name: getattr(model, name) for name in (*names, "answer_tokens", "context_size")}
    told = {"file": model.file, "layers": model.layers, "cpu_factor": model.cpu_factor}
    return {**costs, **told, "weights": model.weights}


def _alias(name: str, target: str) -> Entry:
    return Entry(name, dump_yaml({"alias": target, "name": name}), None, target)


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        held = merged.get(key)
        if isinstance(value, Mapping) and isinstance(held, Mapping):
            merged[key] = _merge(held, value)
        else:
            merged[key] = value
    return merged
