"""The model file of a rung that we make, out of that of its model. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from contracts.ids import ModelId
from contracts.variants import MARK, Rung

_LEFT_OUT = frozenset(
    {"alias", "pinned", "preload", "disabled", "concurrency_groups", "download_files", MARK}
)
"""What belongs to the model alone: its groups would have LocalAI unload the one for the other."""

_DIGEST_CHARS = 12


def document_of(model: ModelId, base: Mapping[str, object], rung: Rung) -> dict[str, object]:
    """The rung's file: the model's own, but for what the rung says, and with our mark."""
    document = {key: value for key, value in base.items() if key not in _LEFT_OUT}
    document["name"] = str(rung.model)
    if rung.file:
        given = base.get("parameters")
        parameters = dict(given) if isinstance(given, Mapping) else {}
        document["parameters"] = {**parameters, "model": rung.file}
    told = {
        "gpu_layers": rung.gpu_layers,
        "threads": rung.threads,
        "context_size": rung.context_size,
    }
    document.update({key: value for key, value in told.items() if value is not None})
    document[MARK] = {
        "made": True,
        "of": str(model),
        "kind": rung.kind.value,
        "from": digest_of(base, rung),
    }
    return document


def is_ours(document: Mapping[str, object]) -> bool:
    """Whether a model file says that we made it."""
    mark = document.get(MARK)
    return isinstance(mark, Mapping) and mark.get("made") is True


def is_current(document: Mapping[str, object], base: Mapping[str, object], rung: Rung) -> bool:
    """Whether it was made out of what the model's file and the rung say now."""
    mark = document.get(MARK)
    return isinstance(mark, Mapping) and mark.get("from") == digest_of(base, rung)


def digest_of(base: Mapping[str, object], rung: Rung) -> str:
    """A short digest of all that a rung's file is made of."""
    kept = {key: value for key, value in base.items() if key not in _LEFT_OUT}
    told = (rung.file, rung.gpu_layers, rung.threads, rung.context_size)
    text = json.dumps([kept, told], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]
