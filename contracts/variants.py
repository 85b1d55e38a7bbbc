"""Ladders: what may answer for a model while its own place in GPU memory is not to be had.

A rung is a model of LocalAI's like any other, with a process of its own. It was there before,
or is made by us through LocalAI's configuration calls: then its name says so (``MADE``), and
so does the key ``MARK`` in its file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from contracts.ids import ModelId

MADE = "--headstart-"
"""In the name of every model that is made by us, and of no other."""

MARK = "headstart"
"""The top-level key of a LocalAI model file that says: made by us, and what of."""

QUANTISATIONS = (
    "f32", "bf16", "f16", "q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_0", "q4_k_m", "q4_k_s", "q4_0",
    "q3_k_m", "q3_k_s", "q2_k",
)  # fmt: skip
"""Of GGUF files, the largest first."""


class Fallback(StrEnum):
    """Whether requests may be answered from a lower rung."""

    ALLOW = "allow"
    ASK = "ask"
    """Only those that say ``X-Headstart-Fallback: allow``."""
    DENY = "deny"


class RungKind(StrEnum):
    """What a rung gives up."""

    QUANTISED = "quantised"
    """Precision: the same model from a smaller file, or whatever model is named."""
    PARTIAL = "partial"
    """Speed: fewer of its layers are on the GPU."""
    CPU = "cpu"
    """More speed: none of them is. It takes host memory alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One step down.

    Attributes
    ----------
    model : ModelId
        Its name in LocalAI.
    is_made : bool
        It is made by us where LocalAI does not have it yet.
    quantisation : str
        Of ``QUANTISATIONS``; empty: not told.
    file : str
        The weights below the models folder; empty: those of the model itself, or the file
        beside it that differs in the quantisation alone.
    gpu_layers, threads, context_size : int or None
        As LocalAI's model file has them; None: as the model itself.
    """

    model: ModelId
    kind: RungKind
    is_made: bool = False
    quantisation: str = ""
    file: str = ""
    gpu_layers: int | None = None
    threads: int | None = None
    context_size: int | None = None

    @property
    def on_host(self) -> bool:
        """Whether it takes no GPU memory."""
        return self.kind is RungKind.CPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """What may stand in for ``model``, the best first.

    Attributes
    ----------
    cpu_factor : float or None
        How many times longer it takes on CPUs than on its GPU, until that was measured.
    """

    model: ModelId
    rungs: tuple[Rung, ...]
    fallback: Fallback = Fallback.ALLOW
    cpu_factor: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderOptions:
    """Rungs of models that name none themselves.

    Attributes
    ----------
    partial : bool
        One with half as many layers on the GPU.
    smaller_files : bool
        Those of the same weights in smaller quantisations, as far as the files are there.
    """

    partial: bool = False
    smaller_files: bool = False

    @property
    def any(self) -> bool:
        """Whether they ask for anything."""
        return self.partial or self.smaller_files


class ModelFiles(Protocol):
    """The model files of one LocalAI, through its configuration calls.

    Each call has its own limit. Raises Transient when LocalAI does not answer, Permanent when
    it refuses.
    """

    async def names(self) -> tuple[ModelId, ...]:
        """Every model that has a file, ours included."""
        ...

    async def read(self, model: ModelId) -> Mapping[str, object] | None:
        """The file as it stands, with the keys that LocalAI does not know; None: there is none."""
        ...

    async def write(self, document: Mapping[str, object]) -> None:
        """A new file, by its ``name``. One of that name is written over."""
        ...

    async def remove(self, model: ModelId) -> None:
        """Unload it and take its file away; one that is not there is no error."""
        ...


def is_made(name: str) -> bool:
    """Whether a model of this name is one of ours.

    >>> is_made("llama--headstart-cpu"), is_made("llama")
    (True, False)
    """
    return MADE in name


def made_name(model: str, what: str) -> ModelId:
    """The name of a rung that is made for ``model``. LocalAI takes none with a slash in it.

    >>> made_name("org/llama", "cpu")
    'org_llama--headstart-cpu'
    """
    return ModelId(f"{model.replace('/', '_')}{MADE}{what}")


def may_fall_back(ladder: Ladder, *, key: Fallback | None, asked: bool | None) -> bool:
    """Whether a request may be answered from a lower rung.

    Model, key and caller each may refuse; where one of the first two wants to be asked, the
    caller has to say so. ``asked``: what the caller says; None: nothing.
    """
    words = (ladder.fallback, Fallback.ALLOW if key is None else key)
    if asked is False or Fallback.DENY in words:
        return False
    return asked is True or Fallback.ASK not in words
