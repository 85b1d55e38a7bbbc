"""What was measured and told of a model, each number with where it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from api.control.schemas import Schema
from contracts.memory import HOST, FootprintSource
from contracts.profiles import (
    FIRST_TOKEN,
    FIRST_TOKEN_COLD,
    LOAD_COLD,
    LOAD_WARM,
    TOKEN_AT,
    Estimate,
    MeasuredProfile,
    Measures,
    batch_gain,
    file_read_s,
    gpu_over_cpu,
)
from contracts.variants import MADE
from contracts.world import ModelStatus, WorldSnapshot

_CPU = "cpu"


class NumberView(Schema):
    """One number: what it is, where it comes from, how sure it is and how old."""

    name: str
    value: float
    unit: Literal["bytes", "seconds", "ratio"]
    source: FootprintSource | Literal["derived"]
    count: int | None = Field(default=None, description="Measurements that it rests on.")
    spread: float | None = Field(default=None, description="Their standard deviation, robustly.")
    at_s: float | None = Field(default=None, description="When the last one was made.")
    age_s: float | None = None


class ConfigurationView(Schema):
    """One configuration of the model on one node that was measured."""

    node: str
    revision: str
    footprint_bytes: float | None
    loads: int
    rejected: int
    at_s: float


class ProfileView(Schema):
    """Everything known of what a model takes and how fast it is."""

    object: Literal["model.profile"] = "model.profile"
    id: str
    node: str
    footprint_bytes: int | None
    footprint_source: FootprintSource | None
    numbers: list[NumberView]
    rejected: int = Field(default=0, description="Loads that could not be measured: others moved.")
    configurations: list[ConfigurationView] = Field(default=[])
    stale: bool = False


def profile_view(
    world: WorldSnapshot, status: ModelStatus, profile: MeasuredProfile | None, now_s: float
) -> ProfileView:
    """What is known of ``status``; of the configuration that was measured last at its home."""
    measures = _at_home(status, profile)
    numbers = [] if measures is None else [*_measured(measures, now_s), *_derived(measures, now_s)]
    if measures is not None:
        numbers.extend(_against_cpu(world, status, profile, measures, now_s))
    source = status.footprint_source
    if source is not None and source is not FootprintSource.MEASURED:
        assert status.footprint_bytes is not None
        told = NumberView(
            name="footprint_bytes",
            value=status.footprint_bytes,
            unit="bytes",
            source=source,
        )
        numbers.insert(0, told)
    return ProfileView(
        id=status.model,
        node=status.node,
        footprint_bytes=status.footprint_bytes,
        footprint_source=source,
        numbers=numbers,
        rejected=0 if measures is None else measures.rejected,
        configurations=[] if profile is None else [_configuration(m) for m in profile.measures],
    )


def _at_home(status: ModelStatus, profile: MeasuredProfile | None) -> Measures | None:
    here = [] if profile is None else [m for m in profile.measures if m.node == status.node]
    return max(here, key=lambda one: one.at_s, default=None)


def _measured(measures: Measures, now_s: float) -> Iterator[NumberView]:
    for place, estimate in measures.footprint().items():
        where = "host_ram" if place == HOST else place or "memory"
        yield _number(f"footprint_bytes:{where}", estimate, now_s, unit="bytes")
    for name in (LOAD_COLD, LOAD_WARM, FIRST_TOKEN_COLD, FIRST_TOKEN):
        found = measures.estimate(name)
        if found is not None:
            yield _number(name, found, now_s)
    for name in sorted(measures.series):
        found = measures.estimate(name)
        if name.startswith(TOKEN_AT) and found is not None:
            yield _number(name, found, now_s)


def _derived(measures: Measures, now_s: float) -> Iterator[NumberView]:
    read = file_read_s(measures)
    if read is not None:
        yield _number("file_read_s", read, now_s, source="derived")
    for batch, gain in batch_gain(measures).items():
        yield NumberView(name=f"batch_gain_at_{batch}", value=gain, unit="ratio", source="derived")


def _against_cpu(
    world: WorldSnapshot,
    status: ModelStatus,
    profile: MeasuredProfile | None,
    measures: Measures,
    now_s: float,
) -> Iterator[NumberView]:
    """Beside a node of CPUs that the model was measured on too, of whatever configuration."""
    for other in () if profile is None else profile.measures:
        node = world.nodes.get(other.node)
        if node is None or node.accelerator != _CPU or other.node == status.node:
            continue
        ratio = gpu_over_cpu(measures, other)
        if ratio is not None:
            yield NumberView(
                name="gpu_over_cpu",
                value=ratio,
                unit="ratio",
                source="derived",
                at_s=other.at_s,
                age_s=max(0.0, now_s - other.at_s),
            )
            return


def cpu_rung(world: WorldSnapshot, status: ModelStatus) -> ModelStatus | None:
    """The variant of it that runs on the CPU and was made by us, if there is one."""
    for name in sorted(world.models):
        other = world.models[name]
        if other.on_host and name.startswith(f"{status.model}{MADE}"):
            return other
    return None


def beside_cpu_rung(
    view: ProfileView, status: ModelStatus, mine: MeasuredProfile | None, rung: MeasuredProfile
) -> ProfileView:
    """``view`` with how much faster it is than its variant on the CPU, where that was measured."""
    measures = _at_home(status, mine)
    theirs = max(rung.measures, key=lambda one: one.at_s, default=None)
    ratio = None if measures is None or theirs is None else gpu_over_cpu(measures, theirs)
    if ratio is None or any(number.name == "gpu_over_cpu" for number in view.numbers):
        return view
    number = NumberView(name="gpu_over_cpu", value=ratio, unit="ratio", source="derived")
    return view.model_copy(update={"numbers": [*view.numbers, number]})


def _number(
    name: str,
    estimate: Estimate,
    now_s: float,
    *,
    unit: Literal["bytes", "seconds", "ratio"] = "seconds",
    source: FootprintSource | Literal["derived"] = FootprintSource.MEASURED,
) -> NumberView:
    return NumberView(
        name=name,
        value=estimate.value,
        unit=unit,
        source=source,
        count=estimate.count,
        spread=estimate.spread,
        at_s=estimate.at_s,
        age_s=max(0.0, now_s - estimate.at_s),
    )


def _configuration(measures: Measures) -> ConfigurationView:
    footprint = measures.footprint()
    return ConfigurationView(
        node=measures.node,
        revision=measures.revision,
        footprint_bytes=sum(one.value for one in footprint.values()) if footprint else None,
        loads=measures.footprint_count,
        rejected=measures.rejected,
        at_s=measures.at_s,
    )
