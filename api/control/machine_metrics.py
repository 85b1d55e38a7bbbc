"""Machines and their GPUs for Prometheus, card by card, in base units.

What is not told has no series. Labels are bounded: nodes are configured, and of each at most
``MAX_GPUS`` cards have series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from api.control.machine_views import in_force
from contracts.readings import GpuReading, ProbeReading
from contracts.reasons import Reason
from contracts.world import NodeStatus, WorldSnapshot

MAX_GPUS = 64

STRAINS = (Reason.GPU_BUSY, Reason.CPU_BUSY, Reason.VRAM_FULL, Reason.LOADS_SLOW)

_GPU: tuple[tuple[str, str, Callable[[GpuReading], float | None]], ...] = (
    ("memory_total_bytes", "Memory of the card.", lambda gpu: gpu.memory_total_bytes),
    ("memory_used_bytes", "Memory in use.", lambda gpu: gpu.memory_used_bytes),
    ("memory_free_bytes", "Memory that is free.", lambda gpu: gpu.memory_free_bytes),
    (
        "memory_reserved_bytes",
        "Memory that the driver holds itself.",
        lambda gpu: gpu.memory_reserved_bytes,
    ),
    (
        "memory_others_bytes",
        "Memory that is neither free nor LocalAI's.",
        lambda gpu: gpu.used_by_others_bytes,
    ),
    ("utilization_ratio", "Share of time in which the card works.", lambda g: g.utilization_ratio),
    ("temperature_celsius", "Temperature of the card.", lambda gpu: gpu.temperature_celsius),
    ("power_watts", "Power that the card draws.", lambda gpu: gpu.power_watts),
)

_HOST: tuple[tuple[str, str, Callable[[ProbeReading], float | None]], ...] = (
    ("memory_total_bytes", "Host memory, within its group.", lambda r: r.host_memory_total_bytes),
    ("memory_used_bytes", "Host memory in use.", lambda r: r.host_memory_used_bytes),
    (
        "memory_available_bytes",
        "Host memory that new work may take.",
        lambda r: r.host_memory_available_bytes,
    ),
    ("cpu_utilization_ratio", "Share of CPU time in use.", lambda r: r.cpu_utilization_ratio),
    ("cpus", "CPUs that may be used.", lambda r: r.cpus),
    (
        "context_switches_per_second",
        "Switches between tasks.",
        lambda r: r.context_switches_per_s,
    ),
)

_LOADS: tuple[tuple[str, Callable[[ProbeReading], float | None]], ...] = (
    ("1m", lambda r: r.load_average_1min),
    ("5m", lambda r: r.load_average_5min),
    ("15m", lambda r: r.load_average_15min),
)

_PRESSURES: tuple[tuple[str, str, Callable[[ProbeReading], float | None]], ...] = (
    ("cpu", "some", lambda r: r.cpu_pressure_some_ratio),
    ("cpu", "full", lambda r: r.cpu_pressure_full_ratio),
    ("memory", "some", lambda r: r.memory_pressure_some_ratio),
    ("memory", "full", lambda r: r.memory_pressure_full_ratio),
    ("io", "some", lambda r: r.io_pressure_some_ratio),
    ("io", "full", lambda r: r.io_pressure_full_ratio),
)


def machines(world: WorldSnapshot) -> Iterator[Metric]:
    """All of it, as the world has it."""
    nodes = [world.nodes[name] for name in sorted(world.nodes)]
    read = [(node, node.reading) for node in nodes if node.reading is not None]
    yield from _gpus(
        [(node.node, gpu) for node, reading in read for gpu in reading.gpus[:MAX_GPUS]]
    )
    yield from _hosts([(node.node, reading) for node, reading in read])
    yield from _strains(nodes)
    yielded = in_force(world, world.gpu_yield, world.taken_at_s)[0] is not None
    family = GaugeMetricFamily(
        "headstart_gpu_yielded", "1 while the GPU is handed over to another program."
    )
    family.add_metric([], float(yielded))
    yield family


def _gpus(cards: list[tuple[str, GpuReading]]) -> Iterator[Metric]:
    info = GaugeMetricFamily(
        "headstart_gpu_info",
        "1 for each card, with what it is.",
        labels=["node", "gpu", "name", "accelerator", "unified"],
    )
    for node, gpu in cards:
        unified = "true" if gpu.is_unified else "false"
        info.add_metric([node, gpu.uuid, gpu.name, gpu.accelerator, unified], 1.0)
    yield info
    for name, text, figure in _GPU:
        family = GaugeMetricFamily(f"headstart_gpu_{name}", text, labels=["node", "gpu"])
        for node, gpu in cards:
            value = figure(gpu)
            if value is not None:
                family.add_metric([node, gpu.uuid], float(value))
        yield family


def _hosts(hosts: list[tuple[str, ProbeReading]]) -> Iterator[Metric]:
    for name, text, figure in _HOST:
        family = GaugeMetricFamily(f"headstart_host_{name}", text, labels=["node"])
        for node, reading in hosts:
            value = figure(reading)
            if value is not None:
                family.add_metric([node], float(value))
        yield family
    loads = GaugeMetricFamily(
        "headstart_host_load_average_tasks",
        "Tasks that run or wait to, on average.",
        labels=["node", "over"],
    )
    pressures = GaugeMetricFamily(
        "headstart_host_pressure_ratio",
        "Share of the last ten seconds in which some, or all, tasks had to wait.",
        labels=["node", "resource", "tasks"],
    )
    for node, reading in hosts:
        for over, figure in _LOADS:
            value = figure(reading)
            if value is not None:
                loads.add_metric([node, over], value)
        for resource, tasks, figure in _PRESSURES:
            value = figure(reading)
            if value is not None:
                pressures.add_metric([node, resource, tasks], value)
    yield loads
    yield pressures


def _strains(nodes: list[NodeStatus]) -> Iterator[Metric]:
    strained = GaugeMetricFamily(
        "headstart_node_strained",
        "1 while prefetches and batches wait for this at the node.",
        labels=["node", "reason"],
    )
    loads = GaugeMetricFamily(
        "headstart_node_load_latency_seconds",
        "What the loads of the window took, at the percentile that is watched.",
        labels=["node"],
    )
    slowness = GaugeMetricFamily(
        "headstart_node_load_slowness_ratio",
        "The same as a multiple of what was expected.",
        labels=["node"],
    )
    for node in nodes:
        held = {strain.reason for strain in node.strains}
        for reason in STRAINS:
            strained.add_metric([node.node, reason.value], float(reason in held))
        if node.load_latency_s is not None:
            loads.add_metric([node.node], node.load_latency_s)
        slow = node.levels.get(Reason.LOADS_SLOW)
        if slow is not None:
            slowness.add_metric([node.node], slow)
    yield strained
    yield loads
    yield slowness
