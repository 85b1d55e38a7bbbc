"""The keys of ``headstart.yaml``: one class per section, one line per key."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator

from adapters.settings_groups import ResourceGroup, Schedule
from adapters.settings_models import Model
from adapters.settings_queue import QueueSection
from adapters.settings_scaling import AutoscalingTarget, ComposeHelper
from adapters.settings_services import Control, Gateway, LocalAI, Logging, Predictor, Redis, Workers
from adapters.settings_types import (
    Caching,
    Compression,
    CpuMetric,
    GpuMetric,
    Mode,
    Number,
    Policy,
    Section,
    Strategy,
    Text,
    Whole,
    setting,
)

_DAY_S = 86_400
_YEAR_S = 366 * _DAY_S


class Scheduler(Section):
    """What the controller does with its decisions, and how it makes them."""

    mode: Mode = setting(
        "`observe` records decisions and orders nothing; `active` carries them out; "
        "`resource-aware` is `active` with the default policy.",
        default="observe",
    )
    policy: Policy = setting("How the models that stay loaded are chosen.", default="headstart")
    window_seconds: Number = setting(
        "A model is worth the probability of its use within this time; three or four load times.",
        default=45.0,
        gt=0,
        le=_DAY_S,
    )
    parallel_loads: Whole = setting("Loads that may run at once.", default=2, ge=1, le=64)
    prefetch_horizon_seconds: Number = setting(
        "How far beyond its load time a prefetch may aim; beyond a minute nothing is gained.",
        default=45.0,
        gt=0,
        le=_DAY_S,
    )
    prefetch_margin: Number = setting(
        "How far a prefetch's gain must exceed the loss of what it evicts.",
        default=1.5,
        ge=1,
        le=100,
    )
    prefetch_waste_target: Number = setting(
        "Share of prefetches that may go unused before prefetching gets dearer.",
        default=0.3,
        gt=0,
        lt=1,
    )
    min_residency_seconds: Number = setting(
        "A loaded model is not evicted for a prefetch before this time.",
        default=0.0,
        ge=0,
        le=_DAY_S,
    )
    idle_timeout_seconds: Number = setting(
        "For policy `idle-timeout`: unload after this long without use.",
        default=900.0,
        gt=0,
        le=_YEAR_S,
    )
    default_target_seconds: Number = setting(
        "Latency target of models that have none of their own.", default=2.0, gt=0, le=3600
    )
    turn_seconds: Number = setting(
        "A busy model whose place another one is waited for keeps it for so long; then it takes "
        "nothing new and goes when its last request has ended.",
        default=15.0,
        gt=0,
        le=_DAY_S,
    )
    turn_drain_seconds: Number = setting(
        "How long that last request may take; else the model stays for another turn.",
        default=60.0,
        gt=0,
        le=_DAY_S,
    )
    tick_seconds: Number = setting(
        "Longest time between two runs of the planner.", default=1.0, ge=0.05, le=60
    )
    poll_seconds: Number | None = setting(
        "Time between two looks at LocalAI. None: `resource_monitoring.interval_seconds`.",
        default=None,
        ge=0.5,
        le=300,
    )
    lease_seconds: Number = setting(
        "A second controller takes over after this long without the first.",
        default=7.0,
        ge=1,
        le=300,
    )
    load_timeout_seconds: Number = setting(
        "A load that takes longer has failed.", default=600.0, gt=0, le=_DAY_S
    )
    drain_timeout_seconds: Number = setting(
        "How long gateways may take to stop using a model before its unload is given up.",
        default=5.0,
        gt=0,
        le=600,
    )


class ResourceMonitoring(Section):
    """Looking at the machine."""

    interval_seconds: Number = setting(
        "Time between two looks at the machine, and at LocalAI unless `scheduler.poll_seconds` "
        "is set. What changes slowly, such as temperatures, is read every half minute.",
        default=5.0,
        ge=0.5,
        le=300,
    )
    gpu_metrics: tuple[GpuMetric, ...] = setting(
        "What is read of GPUs. Memory always is, since budgets rest on it.",
        default=("utilization", "memory.used", "temperature"),
    )
    cpu_metrics: tuple[CpuMetric, ...] = setting(
        "What is read of the host. Memory always is. `pressure` is how much of the time work had "
        "to wait.",
        default=("utilization", "load_average", "memory.used", "pressure"),
    )
    probes: tuple[Text, ...] = setting(
        "What reads the machine: `nvml`, `amd`, `intel`, `host`, or the name of a plug-in. "
        "None: all there are.",
        default=(),
        allowed="a list of names of probes",
    )
    gpus: tuple[Text, ...] = setting(
        "The GPUs that LocalAI uses, by UUID or its beginning, or by number as the driver counts. "
        "None: as `CUDA_VISIBLE_DEVICES` says, else all.",
        default=(),
        allowed="a list of UUIDs or numbers in quotes",
    )
    gpu_utilization_threshold: Number = setting(
        "Above this share of GPU time, prefetch and batch are throttled.",
        default=0.85,
        gt=0,
        le=1,
    )
    cpu_utilization_threshold: Number = setting(
        "Above this share of CPU time, prefetch and batch are throttled.",
        default=0.75,
        gt=0,
        le=1,
    )
    vram_usage_threshold: Number = setting(
        "Above this share of GPU memory, prefetch and batch are throttled. Not below what "
        "`memory.reserve_ratio` lets models fill.",
        default=0.90,
        gt=0,
        le=1,
    )
    model_load_latency_window: Number = setting(
        "Loads that ended within so many seconds are watched: where they take much longer than "
        "they used to, prefetching waits.",
        default=30.0,
        gt=0,
        le=_DAY_S,
    )
    inference_latency_percentile: Number = setting(
        "Percentile at which latencies are watched, and at which `max_acceptable_latency_ms` "
        "holds.",
        default=95.0,
        gt=0,
        lt=100,
    )


class Weights(Section):
    """Share of requests by accelerator."""

    cuda: Number = setting("NVIDIA GPUs.", default=0.6, ge=0, le=1000)
    rocm: Number = setting("AMD GPUs.", default=0.2, ge=0, le=1000)
    vulkan: Number = setting("GPUs over Vulkan.", default=0.2, ge=0, le=1000)
    sycl: Number = setting("Intel GPUs.", default=0.2, ge=0, le=1000)
    metal: Number = setting("Apple GPUs.", default=0.2, ge=0, le=1000)
    cpu: Number = setting("No GPU.", default=0.2, ge=0, le=1000)


class LoadBalancing(Section):
    """Sharing requests between several backends."""

    strategy: Strategy = setting(
        "How a backend is chosen, of those that can serve a request: by load, affinity and "
        "priority, or in turn. `score` is another name of `resource-aware`.",
        default="resource-aware",
    )
    weights: Weights = setting("For `weighted-round-robin`.", default=Weights())
    circuit_failures: Whole = setting(
        "After so many failures in a row a backend, or a model on a backend, is not asked for a "
        "while. 0: it always is.",
        default=3,
        ge=0,
        le=1000,
    )


class Optimization(Section):
    """Loading ahead of demand, and the warm tier."""

    enable_model_caching: bool = setting(
        "Keep weights of unloaded models in host memory, where `localai.models_path` says where "
        "they are.",
        default=True,
    )
    cache_size_gb: Number | None = setting(
        "Most host memory for weights of unloaded models, in GiB. None: half of the host's.",
        default=None,
        ge=0,
        le=1024**2,
    )
    cache_read_mb_per_second: Number = setting(
        "How fast weights are read ahead, in MiB a second; loads go before.",
        default=500.0,
        gt=0,
        le=1024**2,
    )
    prefetch_enabled: bool = setting("Load models before they are asked for.", default=True)
    prefetch_window_minutes: Number = setting(
        "Models are loaded at most this long before their use; bounds "
        "`scheduler.prefetch_horizon_seconds`. Weights are read ahead for that time where it is "
        "more than 15 minutes.",
        default=0.75,
        gt=0,
        le=1440,
    )


class MemoryOptimization(Section):
    """Memory techniques that other schedulers offer."""

    model_caching_strategy: Caching = setting(
        "Whose weights are kept in host memory: those likeliest to be loaded soon (`adaptive`), "
        "used last (`lru`), used most (`lfu`), unloaded last (`fifo`), or nobody's (`none`).",
        default="adaptive",
    )
    partial_loading: bool = setting(
        "Models without `variants` get a rung with half as many layers on the GPU.",
        default=False,
    )
    memory_compression: Compression = setting(
        "`quantization`: models without `variants` get rungs of the same weights in smaller "
        "quantisations, as far as their files are there.",
        default="none",
    )
    swap_threshold_mb: Whole | None = setting(
        "Free host memory below which nothing is kept warm, in MiB. None: 1024.",
        default=None,
        ge=0,
        le=1024**3,
    )


class MemoryBudget(Section):
    """What our orders may fill."""

    gpu_budget_mb: Whole | None = setting(
        "Most GPU memory for models on each node, in MiB. None: what the probe says.",
        default=None,
        ge=1,
        le=1024**3,
    )
    host_budget_mb: Whole | None = setting(
        "Most host RAM for models that sit in it, on each node, in MiB. None: what the probe says.",
        default=None,
        ge=1,
        le=1024**3,
    )
    reserve_ratio: Number = setting("Share of the budget that stays free.", default=0.2, ge=0, lt=1)


def _read_only(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(value))


class Document(Section):
    """`headstart.yaml`: every key is optional."""

    data_dir: Text | None = setting(
        "Where state is kept; a relative path starts at this file's folder. "
        "None: ~/.local/share/headstart.",
        default=None,
        allowed="a path",
    )
    gateway: Gateway = setting("The data path.", default=Gateway())
    control: Control = setting("The control API and the dashboard.", default=Control())
    localai: LocalAI = setting("Where LocalAI is.", default=LocalAI())
    redis: Redis = setting("The server between the processes.", default=Redis())
    scheduler: Scheduler = setting("The controller.", default=Scheduler())
    resource_monitoring: ResourceMonitoring = setting(
        "Looking at the machine.", default=ResourceMonitoring()
    )
    queue_config: QueueSection = setting("Admission.", default=QueueSection())
    load_balancing: LoadBalancing = setting("Several backends.", default=LoadBalancing())
    optimization: Optimization = setting("Prefetching and the warm tier.", default=Optimization())
    memory_optimization: MemoryOptimization = setting(
        "Memory techniques.", default=MemoryOptimization()
    )
    memory: MemoryBudget = setting("Memory budget.", default=MemoryBudget())
    resources: Annotated[Mapping[Text, ResourceGroup], AfterValidator(_read_only)] = setting(
        "Groups by kind of work.", default={}, allowed="a mapping of group names"
    )
    models: Annotated[Mapping[Text, Model], AfterValidator(_read_only)] = setting(
        "Models by name, or a list of entries with `name`.",
        default={},
        allowed="a mapping of model names, or a list of entries with a name",
    )
    schedules: tuple[Schedule, ...] = setting(
        "Models that are loaded at known times.",
        default=(),
        allowed="a list of schedules with a cron line",
    )
    autoscaling: Annotated[Mapping[Text, AutoscalingTarget], AfterValidator(_read_only)] = setting(
        "What there may be more or fewer of, by name.",
        default={},
        allowed="a mapping of target names",
    )
    compose_scaler: ComposeHelper = setting("Who scales compose services.", default=ComposeHelper())
    predictor: Predictor = setting("Forecasts.", default=Predictor())
    workers: Workers = setting("Batches and background jobs.", default=Workers())
    logging: Logging = setting("Logs.", default=Logging())
