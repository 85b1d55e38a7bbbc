"""LocalAI's model files: the ``scheduling_profile`` that may stand in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from adapters.localai_warming import usecases_by_name, usecases_of
from adapters.model_kinds import modality_of
from adapters.model_revision import revision_of
from adapters.model_weights import local_weights
from adapters.settings_configs import profile_of
from adapters.settings_merge import without_nulls
from adapters.settings_problems import Problems, shown
from adapters.settings_source import Source, read_yaml
from adapters.settings_validation import validate
from contracts.config import ModelProfile
from contracts.ids import ModelId
from contracts.modalities import Modality

_PARALLEL = frozenset({"parallel", "n_parallel"})
_MAX_SLOTS = 10_000

OUR_KEYS = ("scheduling_profile", "preload", "pinned", "slots")


def parse_scheduling_profile(text: str | bytes, *, source: str = "model file") -> ModelProfile:
    """What a LocalAI model file declares for us; its own keys are passed over.

    Parameters
    ----------
    text : str or bytes
        The file as it stands, YAML or JSON, such as ``GET /api/models/edit/{name}`` gives it.
    source : str
        How errors name it.

    Raises
    ------
    Invalid
        When it is no mapping with a ``name``, or when our part of it is wrong; one line for
        each error, with its line number.
    """
    problems = Problems()
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    file = read_yaml(data, source, problems)
    name = file.values.get("name")
    if not isinstance(name, str):
        where = file.origins.get(("name",), source)
        problems.add(where, f"name = {shown(name)}: must be text")
    problems.raise_if_any()
    ours = {key: file.values[key] for key in OUR_KEYS if key in file.values}
    values = without_nulls({"models": {name: ours}}, ())
    origins = {
        ("models", str(name), *place): origin
        for place, origin in file.origins.items()
        if place[0] in OUR_KEYS
    }
    document = validate(Source(values, origins), problems)
    problems.raise_if_any()
    assert document is not None
    profile = profile_of(str(name), document.models[str(name)])
    return replace(
        profile,
        slots=own_slots(file.values) if profile.slots is None else profile.slots,
        modality=own_modality(str(name), file.values),
        weights=local_weights(file.values),
        threads=_whole(file.values.get("threads")),
        gpu_layers=_whole(file.values.get("gpu_layers")),
        on_host=profile.on_host or file.values.get("gpu_layers") == 0,
        revision=revision_of(file.values),
        exclusive=own_exclusive(file.values),
    )


def own_modality(name: str, config: Mapping[str, object]) -> Modality | None:
    """What a model is asked for: as its file says, by its backend, or by its name."""
    uses = usecases_of(config)
    return modality_of(uses) or modality_of(usecases_by_name(ModelId(name)))


def own_exclusive(config: Mapping[str, object]) -> tuple[str, ...]:
    """``concurrency_groups``: LocalAI keeps one model of each resident, and so do we."""
    groups = config.get("concurrency_groups")
    return tuple(str(name) for name in groups) if isinstance(groups, list) else ()


def own_slots(config: Mapping[str, object]) -> int | None:
    """How many requests LocalAI serves at once by its own file; None: it does not say.

    ``limits.max_concurrent`` is what LocalAI refuses beyond; ``parallel`` among the options
    is what its llama.cpp backend works on at once, the rest of which it would queue itself,
    without regard to class.
    """
    limits = config.get("limits")
    told = [_count(limits.get("max_concurrent"))] if isinstance(limits, Mapping) else []
    options = config.get("options")
    for option in options if isinstance(options, list) else ():
        name, _, value = str(option).partition(":")
        if name.strip() in _PARALLEL:
            told.append(_count(value.strip()))
    return min((count for count in told if count is not None), default=None)


def _whole(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= _MAX_SLOTS else None


def _count(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isdecimal() and 1 <= int(text[:6]) <= _MAX_SLOTS else None
