"""Which ladders there are: those that are configured, and those that options make. Pure.

Files of one family differ in their quantisation alone: ``llama-3-8b.Q8_0.gguf`` and
``llama-3-8b.Q4_K_M.gguf``. Which there are is known from LocalAI's model files, and from its
models folder where that can be looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from contracts.config import ModelProfile
from contracts.ids import ModelId
from contracts.variants import (
    QUANTISATIONS,
    Fallback,
    Ladder,
    LadderOptions,
    Rung,
    RungKind,
    is_made,
    made_name,
)
from contracts.world import WorldSnapshot

MAX_SMALLER = 3
"""Smaller files of one model that become rungs of it."""

HALF_OF_UNKNOWN_LAYERS = 16
"""Half of the layers of a model of seven or eight billion weights, where nobody says how many."""

_ORDER = {word: place for place, word in enumerate(QUANTISATIONS)}


@dataclass(frozen=True, slots=True)
class Family:
    """The weights that a file holds, and how they are quantised."""

    stem: str
    quantisation: str


def family_of(file: str) -> Family | None:
    """What a name of a file says; None: it names no quantisation that we know.

    >>> family_of("llm/Llama-3.Q4_K_M.gguf")
    Family(stem='llm/llama-3', quantisation='q4_k_m')
    """
    bare, dot, ending = file.lower().rpartition(".")
    if not dot or ending != "gguf":
        return None
    for word in QUANTISATIONS:
        stem = bare.removesuffix(word)
        if stem != bare and stem[-1:] in (".", "-", "_") and stem[:-1]:
            return Family(stem[:-1], word)
    return None


Families = Mapping[str, Mapping[str, str]]
"""Files by what they hold, and then by their quantisation."""


def families_of(files: Iterable[str]) -> Families:
    """The files that say what they hold."""
    found: dict[str, dict[str, str]] = {}
    for file in sorted(files):
        family = family_of(file)
        if family is not None:
            found.setdefault(family.stem, {}).setdefault(family.quantisation, file)
    return found


def beside(file: str, quantisation: str, families: Families) -> str | None:
    """The file with the same weights in this quantisation; None: there is none."""
    own = family_of(file)
    return None if own is None else families.get(own.stem, {}).get(quantisation)


def all_ladders(
    configured: Mapping[ModelId, Ladder],
    options: LadderOptions,
    profiles: Mapping[ModelId, ModelProfile],
    listed: Iterable[ModelId],
    files: Collection[str] = (),
) -> dict[ModelId, Ladder]:
    """Every model's ladder, with each rung that can be had or made.

    Parameters
    ----------
    profiles : mapping
        Of all models that are listed, for their files and layers.
    files : collection
        Files of the models folder, beside those that profiles name.
    """
    known = families_of({*files, *(file for one in profiles.values() for file in one.weights)})
    owners = _owners(profiles)
    found: dict[ModelId, Ladder] = {}
    for model in sorted(listed):
        own = configured.get(model)
        if own is not None and own.rungs:
            found[model] = replace(own, rungs=_resolved(own, profiles.get(model), known))
        elif options.any and not is_made(model) and _may_be_given(own):
            rungs = _given(model, options, profiles.get(model), known, owners)
            base = own or Ladder(model=model, rungs=())
            found[model] = replace(base, rungs=rungs)
    return {model: ladder for model, ladder in found.items() if ladder.rungs}


def listed_rungs(ladders: Mapping[ModelId, Ladder], world: WorldSnapshot) -> dict[ModelId, Ladder]:
    """The ladders without what LocalAI does not list (yet): what gateways may use."""
    shown: dict[ModelId, Ladder] = {}
    for model, ladder in ladders.items():
        rungs = tuple(rung for rung in ladder.rungs if rung.model in world.models)
        if rungs and model in world.models:
            shown[model] = replace(ladder, rungs=rungs)
    return shown


def with_host_rungs(world: WorldSnapshot, ladders: Mapping[ModelId, Ladder]) -> WorldSnapshot:
    """The world that knows which rungs run on CPUs, whatever LocalAI estimates for a GPU."""
    on_host = {rung.model for one in ladders.values() for rung in one.rungs if rung.on_host}
    changed = {
        name: replace(world.models[name], on_host=True)
        for name in on_host & world.models.keys()
        if not world.models[name].on_host
    }
    return replace(world, models={**world.models, **changed}) if changed else world


def _may_be_given(own: Ladder | None) -> bool:
    return own is None or own.fallback is not Fallback.DENY


def _owners(profiles: Mapping[ModelId, ModelProfile]) -> dict[str, ModelId]:
    """Which model of the user's own has a file as its only one."""
    owners: dict[str, ModelId] = {}
    for model in sorted(profiles):
        weights = profiles[model].weights
        if len(weights) == 1 and not is_made(model):
            owners.setdefault(weights[0], model)
    return owners


def _resolved(ladder: Ladder, profile: ModelProfile | None, families: Families) -> tuple[Rung, ...]:
    """The rungs that can be made: one that names no file gets that beside the model's own."""
    own = profile.weights[0] if profile is not None and profile.weights else ""
    rungs: list[Rung] = []
    for rung in ladder.rungs:
        if not rung.is_made or rung.file or not rung.quantisation:
            rungs.append(rung)
        elif (file := beside(own, rung.quantisation, families)) is not None:
            rungs.append(replace(rung, file=file))
    return tuple(rungs)


def _given(
    model: ModelId,
    options: LadderOptions,
    profile: ModelProfile | None,
    families: Families,
    owners: Mapping[str, ModelId],
) -> tuple[Rung, ...]:
    """The rungs that options give to a model that names none."""
    if profile is None or profile.on_host or profile.gpu_layers == 0:
        return ()
    rungs = list(_smaller(model, profile, families, owners)) if options.smaller_files else []
    if options.partial:
        layers = profile.gpu_layers
        half = HALF_OF_UNKNOWN_LAYERS if layers is None else layers // 2
        if half:
            name = made_name(model, f"gpu{half}")
            rungs.append(Rung(model=name, kind=RungKind.PARTIAL, is_made=True, gpu_layers=half))
    return tuple(rungs)


def _smaller(
    model: ModelId, profile: ModelProfile, families: Families, owners: Mapping[str, ModelId]
) -> Iterable[Rung]:
    own = family_of(profile.weights[0]) if profile.weights else None
    if own is None:
        return
    files = families[own.stem]
    smaller = [word for word in files if _ORDER[word] > _ORDER[own.quantisation]]
    for word in sorted(smaller, key=lambda word: _ORDER[word])[:MAX_SMALLER]:
        owner = owners.get(files[word])
        yield Rung(
            model=made_name(model, word) if owner is None else owner,
            kind=RungKind.QUANTISED,
            is_made=owner is None,
            quantisation=word,
            file=files[word] if owner is None else "",
        )
