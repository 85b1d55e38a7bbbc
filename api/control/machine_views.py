"""From what was read of machines to what people see. Pure."""

from __future__ import annotations

from typing import Literal

from api.control import views
from api.control.board import Board
from api.control.machine_schemas import (
    GpuHandoverView,
    GpuView,
    HostView,
    MachineNodeView,
    StrainView,
)
from contracts.readings import GpuReading, ProbeReading
from contracts.reasons import explain
from contracts.world import GpuYield, NodeStatus, Strain, WorldSnapshot


def machine_node_view(board: Board, node: NodeStatus, now_s: float) -> MachineNodeView:
    """One node with its machine."""
    reading = node.reading
    world = board.world
    yielded = world is not None and in_force(world, world.gpu_yield, now_s)[0] is not None
    return MachineNodeView(
        **views.node_view(board, node).model_dump(),
        read_at_s=None if reading is None else reading.at_s,
        gpus=[] if reading is None else [_gpu_view(gpu) for gpu in reading.gpus],
        host=None if reading is None else _host_view(reading),
        strains=[_strain_view(strain) for strain in node.strains],
        load_latency_s=node.load_latency_s,
        gpu_yielded=yielded and node.accelerator != "cpu",
    )


def in_force(
    world: WorldSnapshot, wanted: GpuYield | None, now_s: float
) -> tuple[GpuYield | None, Literal["operator", "schedule"] | None]:
    """What the GPU is handed over for, and by whom: what somebody set goes before quiet hours."""
    if wanted is not None and wanted.holds(now_s):
        return wanted, "operator"
    quiet_s = world.quiet_until_s
    if quiet_s is not None and now_s < quiet_s:
        return GpuYield(since_s=now_s, until_s=quiet_s, note="quiet hours"), "schedule"
    return None, None


def handover_view(
    world: WorldSnapshot, wanted: GpuYield | None, now_s: float, *, stale: bool
) -> GpuHandoverView:
    """Whether it is handed over; ``wanted`` is what is set, which the world may not show yet."""
    wish, by = in_force(world, wanted, now_s)
    gpu_nodes = {name for name, node in world.nodes.items() if node.accelerator != "cpu"}
    held = [m for m in world.models.values() if m.node in gpu_nodes and not m.on_host]
    return GpuHandoverView(
        yielded=wish is not None,
        by=by,
        since_s=wish.since_s if wish is not None and by == "operator" else None,
        until_s=None if wish is None else wish.until_s,
        keep_bytes=None if wish is None else wish.keep_bytes,
        note="" if wish is None else wish.note,
        held_bytes=sum(model.occupied_bytes for model in held),
        stale=stale,
    )


def _gpu_view(gpu: GpuReading) -> GpuView:
    return GpuView(
        uuid=gpu.uuid,
        name=gpu.name,
        accelerator=gpu.accelerator,
        parent_uuid=gpu.parent_uuid,
        is_unified=gpu.is_unified,
        memory_total_bytes=gpu.memory_total_bytes,
        memory_used_bytes=gpu.memory_used_bytes,
        memory_free_bytes=gpu.memory_free_bytes,
        memory_reserved_bytes=gpu.memory_reserved_bytes,
        used_by_others_bytes=gpu.used_by_others_bytes,
        utilization_ratio=views.finite(gpu.utilization_ratio),
        temperature_celsius=views.finite(gpu.temperature_celsius),
        power_watts=views.finite(gpu.power_watts),
    )


def _host_view(reading: ProbeReading) -> HostView:
    return HostView(
        memory_total_bytes=reading.host_memory_total_bytes,
        memory_available_bytes=reading.host_memory_available_bytes,
        cpus=reading.cpus,
        cpu_utilization_ratio=reading.cpu_utilization_ratio,
        load_average_1min=reading.load_average_1min,
        load_average_15min=reading.load_average_15min,
        context_switches_per_s=reading.context_switches_per_s,
        cpu_pressure_some_ratio=reading.cpu_pressure_some_ratio,
        memory_pressure_some_ratio=reading.memory_pressure_some_ratio,
        memory_pressure_full_ratio=reading.memory_pressure_full_ratio,
        io_pressure_some_ratio=reading.io_pressure_some_ratio,
        io_pressure_full_ratio=reading.io_pressure_full_ratio,
    )


def _strain_view(strain: Strain) -> StrainView:
    return StrainView(
        reason=strain.reason,
        explanation=explain(strain.reason),
        since_s=strain.since_s,
        level=strain.level,
        threshold=strain.threshold,
    )
