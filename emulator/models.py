"""The models of an emulated LocalAI, as a YAML or JSON file describes them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from contracts.errors import Invalid
from simulator.cluster import ModelSpec

MIB = 1024**2

USECASES: dict[str, tuple[str, ...]] = {
    "chat": ("chat", "completion"),
    "embedding": ("embeddings",),
    "speech": ("tts",),
    "transcription": ("transcript",),
    "image": ("image",),
    "detection": ("detection",),
    "sound": ("sound_generation",),
    "rerank": ("rerank",),
    "vad": ("vad",),
}
"""What each kind of model may be asked for, in LocalAI's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedModel:
    """One model: what it costs, how fast it answers.

    Attributes
    ----------
    kind : str
        One of ``USECASES``.
    footprint_mb : int
        Memory while it is loading or loaded, in MiB.
    load_s : float
        Time for its weights; LocalAI's start of the process (2 s) comes on top unless load
        times are exact.
    parallel : int
        Requests that its backend serves at once.
    tokens_per_s, first_token_s, answer_tokens :
        Speed, delay of the first token, and length of an answer without ``max_tokens``.
    aliases : tuple of str
        Other names that lead to it.
    first_touch_s : float
        What the first answer after a load takes longer: weights that were mapped are read.
    strict : bool
        Whether it refuses what it is not made for, as most real backends do.
    weights : bool
        Whether LocalAI has files to estimate its memory by.
    file : str
        Its weights below the models folder; empty: named as the model is.
    layers, gpu_layers : int, int or None
        How many it has, and how many of them are on the GPU; None: all.
    cpu_factor : float
        How many times longer a request takes with none of them there.
    keeps_format : bool
        Whether it says JSON where a schema or a grammar asks for it, and calls tools; else it
        says words, whatever is asked.
    extra : mapping
        Unknown keys, such as ``scheduling_profile``; they stand in the model's own YAML.
    """

    name: str
    kind: str = "chat"
    footprint_mb: int = 1000
    load_s: float = 2.0
    parallel: int = 4
    tokens_per_s: float = 50.0
    first_token_s: float = 0.1
    answer_tokens: int = 32
    context_size: int = 4096
    aliases: tuple[str, ...] = ()
    pinned: bool = False
    disabled: bool = False
    weights: bool = True
    first_touch_s: float = 0.0
    strict: bool = False
    keeps_format: bool = True
    file: str = ""
    layers: int = 32
    gpu_layers: int | None = None
    cpu_factor: float = 8.0
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def usecases(self) -> tuple[str, ...]:
        """What it may be asked for, in LocalAI's words."""
        return USECASES[self.kind]

    @property
    def footprint_bytes(self) -> int:
        """Memory while it is loading or loaded."""
        return self.footprint_mb * MIB

    @property
    def gpu_share(self) -> float:
        """How much of it is on the GPU."""
        return 1.0 if self.gpu_layers is None else min(1.0, self.gpu_layers / self.layers)

    @property
    def slowdown(self) -> float:
        """How many times longer a request takes than with all layers on the GPU."""
        return 1.0 + (self.cpu_factor - 1.0) * (1.0 - self.gpu_share)

    @property
    def weights_file(self) -> str:
        """Its weights below the models folder."""
        return self.file or f"{self.name}.gguf"

    def spec(self) -> ModelSpec:
        """Its costs on the GPU, for the cluster."""
        return ModelSpec(
            name=self.name,
            footprint_bytes=int(self.footprint_bytes * self.gpu_share),
            load_s=self.load_s,
            parallel=self.parallel,
        )

    def to_yaml(self) -> str:
        """Its configuration as it lies in LocalAI's folder."""
        config: dict[str, Any] = {
            "backend": "emulated",
            "context_size": self.context_size,
            "emulator": {
                name: getattr(self, name)
                for name in (*_EMULATED, *_TOLD)
                if name != "kind" and not (name in _TOLD and getattr(self, name) == _default(name))
            },
            "known_usecases": [f"FLAG_{usecase.upper()}" for usecase in self.usecases],
            "name": self.name,
            "parameters": {"model": self.weights_file if self.weights else self.name},
        }
        if self.gpu_layers is not None:
            config["gpu_layers"] = self.gpu_layers
        if self.pinned:
            config["pinned"] = True
        if self.disabled:
            config["disabled"] = True
        return dump_yaml({**config, **self.extra})


_EMULATED = (
    "kind", "footprint_mb", "load_s", "parallel", "tokens_per_s", "first_token_s", "answer_tokens",
)  # fmt: skip

_TOLD = ("file", "layers", "cpu_factor")
"""These stand in the model's own YAML where they say anything."""

_FIELDS = {item.name: item for item in fields(EmulatedModel)}
_WORDS: dict[tuple[type, ...], str] = {
    (str,): "text",
    (bool,): "true or false",
    (int,): "a whole number",
    (int, float): "a number",
}

_MINIMUM = {
    "first_touch_s": 0,
    "footprint_mb": 0,
    "load_s": 0,
    "first_token_s": 0,
    "parallel": 1,
    "answer_tokens": 1,
    "layers": 1,
    "gpu_layers": 0,
    "cpu_factor": 1,
}


def read_models(path: Path) -> tuple[EmulatedModel, ...]:
    """The models of a file: ``{models: [{name: …}, …]}``, a list, or a mapping by name.

    Raises
    ------
    Invalid
        When the file cannot be read or says something that makes no sense.
    """
    return parse_models(_read_yaml(path), where=str(path))


def read_list(path: Path) -> tuple[dict[str, object], ...]:
    """The objects of a file that holds a list of them; Invalid when it does not."""
    document = _read_yaml(path)
    if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
        raise Invalid(f"{path}: expected a list of objects")
    return tuple(document)


def parse_models(document: object, *, where: str = "models") -> tuple[EmulatedModel, ...]:
    """The models of a document that was read; Invalid when it makes no sense."""
    listed = document.get("models", document) if isinstance(document, Mapping) else document
    if isinstance(listed, Mapping):
        wrong = [n for n, entry in listed.items() if not isinstance(entry, Mapping | None)]
        if wrong:
            raise Invalid(f"{where}: {wrong[0]}: expected a mapping with the model's fields")
        listed = [{"name": name, **(entry or {})} for name, entry in listed.items()]
    if not isinstance(listed, list) or not listed:
        raise Invalid(f"{where}: expected a list of models, or a mapping by name")
    models = tuple(parse_model(entry, where=where) for entry in listed)
    names = [name for model in models for name in (model.name, *model.aliases)]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise Invalid(f"{where}: {', '.join(sorted(doubled))}: each name and alias may stand once")
    return models


def parse_model(entry: object, *, where: str = "model") -> EmulatedModel:
    """One model; Invalid when a value has the wrong type or size. Unknown keys are kept."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise Invalid(f"{where}: each model needs a name")
    name = str(entry["name"])
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, value in entry.items():
        spelled = str(key).replace("-", "_")
        if spelled in _FIELDS and spelled != "extra":
            known[spelled] = _checked(spelled, value, where=f"{where}: model {name}")
        else:
            extra[str(key)] = value
    if known.get("kind", "chat") not in USECASES:
        raise Invalid(
            f'{where}: model {name}: kind = "{known["kind"]}": must be one of {", ".join(USECASES)}'
        )
    return EmulatedModel(**known, extra=extra)


def _default(name: str) -> object:
    return _FIELDS[name].default


def load_yaml(text: str) -> Any:
    """Plain values of a YAML (or JSON) text; YAMLError when it is none."""
    return YAML(typ="safe", pure=True).load(text)


def dump_yaml(value: Mapping[str, Any]) -> str:
    """A mapping as YAML text."""
    buffer = io.StringIO()
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.dump(dict(value), buffer)
    return buffer.getvalue()


def _checked(key: str, value: object, *, where: str) -> object:
    if key == "aliases":
        if isinstance(value, str):
            return (value,)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise Invalid(f"{where}: aliases: must be a list of names")
    default = _FIELDS[key].default
    if default is MISSING or isinstance(default, str):
        wanted: tuple[type, ...] = (str,)
    elif isinstance(default, bool):
        wanted = (bool,)
    else:
        wanted = (int, float) if isinstance(default, float) else (int,)
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        raise Invalid(f"{where}: {key} = {value!r}: must be {_WORDS[wanted]}")
    least = _MINIMUM.get(key)
    if least is not None and isinstance(value, int | float) and value < least:
        raise Invalid(f"{where}: {key} = {value!r}: must be at least {least}")
    if key == "tokens_per_s" and isinstance(value, int | float) and value <= 0:
        raise Invalid(f"{where}: {key} = {value!r}: must be above 0")
    return value


def _read_yaml(path: Path) -> object:
    try:
        return load_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Invalid(f"{path}: {(error.strerror or str(error)).lower()}") from error
    except (YAMLError, UnicodeDecodeError) as error:
        told = " ".join(str(error).split())  # YAML's errors draw the place, over several lines
        raise Invalid(f"{path}: {told}") from error
