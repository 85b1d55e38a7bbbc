"""What is told of machines and their GPUs. ``null`` means not told, never zero."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.control.base_schemas import A_NUMBER
from api.control.schemas import Asked, NodeView, Schema
from contracts.reasons import Reason


class GpuView(Schema):
    """One card, or one MIG instance of a card."""

    uuid: str
    name: str
    accelerator: str
    parent_uuid: str | None
    is_unified: bool = Field(description="It lives from the host's memory.")
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    memory_free_bytes: int | None
    memory_reserved_bytes: int | None
    used_by_others_bytes: int | None
    utilization_ratio: float | None
    temperature_celsius: float | None
    power_watts: float | None


class HostView(Schema):
    """The machine beside its GPUs, within what its control group leaves."""

    memory_total_bytes: int | None
    memory_available_bytes: int | None
    cpus: float | None
    cpu_utilization_ratio: float | None
    load_average_1min: float | None
    load_average_15min: float | None
    context_switches_per_s: float | None
    cpu_pressure_some_ratio: float | None
    memory_pressure_some_ratio: float | None
    memory_pressure_full_ratio: float | None
    io_pressure_some_ratio: float | None
    io_pressure_full_ratio: float | None


class StrainView(Schema):
    """Why prefetches and batches wait there."""

    reason: Reason
    explanation: str
    since_s: float
    level: float = Field(description="Smoothed.")
    threshold: float


class MachineNodeView(NodeView):
    """A node with its machine."""

    read_at_s: float | None = Field(description="When its probes were read.")
    gpus: list[GpuView]
    host: HostView | None
    strains: list[StrainView]
    load_latency_s: float | None = Field(
        description="What recent loads took, at the percentile that is watched."
    )
    gpu_yielded: bool = Field(description="The GPU was handed over to another program.")


class GpuYieldBody(Asked):
    """For how long another program wants the GPU, and how much may stay."""

    minutes: Annotated[float, Field(gt=0, le=7 * 24 * 60), A_NUMBER] | None = Field(
        default=None, description="None: until it is taken back."
    )
    keep_mb: Annotated[int, Field(ge=0, le=1024**3), A_NUMBER] = Field(
        default=0, description="MiB that our models may go on holding."
    )
    note: str = Field(default="", max_length=80, description="What for.")


class GpuHandoverView(Schema):
    """Whether the GPU is handed over, and what is still held of it."""

    object: Literal["gpu"] = "gpu"
    yielded: bool
    by: Literal["operator", "schedule"] | None
    since_s: float | None
    until_s: float | None = Field(description="None: until it is taken back.")
    keep_bytes: int | None
    note: str
    held_bytes: int | None = Field(description="What our models hold of GPUs now.")
    stale: bool
