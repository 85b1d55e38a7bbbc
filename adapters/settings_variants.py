"""Ladders in ``headstart.yaml``: what may answer for a model, and what that means for us."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import BeforeValidator, ConfigDict, model_validator

from adapters.settings_types import ALLOWED, Quantisation, Section, Text, Whole, setting
from contracts.ids import ModelId
from contracts.variants import (
    QUANTISATIONS,
    Fallback,
    Ladder,
    LadderOptions,
    Rung,
    RungKind,
    made_name,
)

if TYPE_CHECKING:
    from adapters.settings_models import Model
    from adapters.settings_schema import Document

_QUANTISATION_ALLOWED = f"one of {', '.join(QUANTISATIONS)}"


class Variant(Section):
    """One rung of a ladder: a model that LocalAI has, or one that is made when it is needed."""

    model_config = ConfigDict(
        json_schema_extra={
            ALLOWED: "the name of a model, or a mapping with one of model, quantisation, "
            "gpu_layers and cpu, and what belongs to it"
        }
    )

    model: Text | None = setting(
        "A model that LocalAI has; all else here then only says what it is. None: it is made of "
        "the model itself.",
        default=None,
        allowed="the name of a model",
    )
    quantisation: Quantisation | None = setting(
        "The same weights in this quantisation, from `file`, or from the file beside the model's "
        "own that differs in nothing else.",
        default=None,
        allowed=_QUANTISATION_ALLOWED,
    )
    file: Text | None = setting(
        "Its weights, below LocalAI's models folder.", default=None, allowed="a path"
    )
    gpu_layers: Whole | None = setting(
        "So many of its layers are on the GPU.", default=None, ge=0, le=100_000
    )
    cpu: bool = setting("It runs on CPUs, and takes none of a GPU's memory.", default=False)
    threads: Whole | None = setting("Threads on CPUs.", default=None, ge=1, le=4096)
    context_size: Whole | None = setting(
        "Its context, in tokens. None: the model's own.", default=None, ge=1, le=100_000_000
    )

    @model_validator(mode="after")
    def _is_something(self) -> Self:
        said = (self.model, self.quantisation, self.file, self.gpu_layers, self.cpu or None)
        if all(one is None for one in said):
            raise ValueError("says nothing that differs from the model")
        return self


def _named(value: object) -> object:
    return {"model": value} if isinstance(value, str) else value


VariantEntry = Annotated[Variant, BeforeValidator(_named)]


def rung_of(name: str, variant: Variant) -> Rung:
    """One entry of the ladder of the model of this name."""
    kind = RungKind.QUANTISED
    if variant.cpu or variant.gpu_layers == 0:
        kind, what = RungKind.CPU, "cpu"
    elif variant.gpu_layers is not None:
        kind, what = RungKind.PARTIAL, f"gpu{variant.gpu_layers}"
    else:
        what = variant.quantisation or "file"
    if kind is not RungKind.QUANTISED and variant.quantisation is not None:
        what = f"{variant.quantisation}-{what}"
    return Rung(
        model=made_name(name, what) if variant.model is None else ModelId(variant.model),
        kind=kind,
        is_made=variant.model is None,
        quantisation=variant.quantisation or "",
        file=variant.file or "",
        gpu_layers=0 if kind is RungKind.CPU else variant.gpu_layers,
        threads=variant.threads,
        context_size=variant.context_size,
    )


def ladder_of(name: str, model: Model) -> Ladder | None:
    """What an entry of ``models`` says about its ladder; None: nothing."""
    factor = model.scheduling_profile.gpu_acceleration_factor
    if not model.variants and model.fallback == "allow" and factor is None:
        return None
    return Ladder(
        model=ModelId(name),
        rungs=tuple(rung_of(name, variant) for variant in model.variants),
        fallback=Fallback(model.fallback),
        cpu_factor=factor,
    )


def ladders(document: Document) -> dict[ModelId, Ladder]:
    """The ladders that the configuration names."""
    found = (ladder_of(name, model) for name, model in document.models.items())
    return {ladder.model: ladder for ladder in found if ladder is not None}


def ladder_options(document: Document) -> LadderOptions:
    """Rungs of the models that name none."""
    memory = document.memory_optimization
    return LadderOptions(
        partial=memory.partial_loading, smaller_files=memory.memory_compression == "quantization"
    )


def makes_variants(document: Document) -> bool:
    """Whether the configuration could have any made."""
    named = (rung for ladder in ladders(document).values() for rung in ladder.rungs)
    return ladder_options(document).any or any(rung.is_made for rung in named)
