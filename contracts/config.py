"""What each part needs to be told, as plain values. Entry points fill these from settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from contracts.admission import BalancingConfig as BalancingConfig
from contracts.admission import CallerKey as CallerKey
from contracts.admission import ClassHeader as ClassHeader
from contracts.admission import PriorityWeights as PriorityWeights
from contracts.admission import QueueConfig as QueueConfig
from contracts.admission import TimeoutConfig as TimeoutConfig
from contracts.ahead import WarmConfig as WarmConfig
from contracts.ahead import WarmUpSchedule as WarmUpSchedule
from contracts.events import PriorityClass
from contracts.groups import Groups
from contracts.ids import ModelId, NodeId
from contracts.instances import DiscoveryConfig
from contracts.modalities import Modality
from contracts.node_facts import NodeThresholds
from contracts.scaling import ScalingConfig
from contracts.variants import Ladder, LadderOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """One LocalAI instance. ``api_key`` is never logged, stored or shown.

    ``probe``: who tells of its machine. ``local``: our own probes, since it is this one; ``api``:
    itself; ``auto``: our own if it is the primary one and looks to be on this machine.
    """

    node: NodeId
    url: str
    api_key: str | None = field(default=None, repr=False)
    accelerator: str = "cuda"
    primary: bool = True
    thresholds: NodeThresholds = field(default_factory=NodeThresholds)
    behind: str = ""
    """The address of all instances, of which this is one; empty: it is configured by itself."""
    models_path: str | None = None
    """Its models folder, where it is mounted here."""
    probe: str = "auto"


def is_same_fleet(before: tuple[NodeConfig, ...], after: tuple[NodeConfig, ...]) -> bool:
    """Whether these are the same LocalAIs, if at other addresses or with other keys.

    Of those behind a name only the name counts: they come and go.
    """
    return _who(before) == _who(after)


def _who(nodes: tuple[NodeConfig, ...]) -> tuple[object, ...]:
    named = [(one.node, one.accelerator, one.primary) for one in nodes if not one.behind]
    return named, {(one.behind, one.accelerator) for one in nodes if one.behind}


class WarmUp(StrEnum):
    """Whether a model that was loaded ahead of its use is made to answer something at once."""

    AUTO = "auto"
    """Where a small request of its kind exists."""
    ALWAYS = "always"
    """Also where the smallest takes a while, such as an image."""
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """What the configuration declares about a model; None: not declared.

    Attributes
    ----------
    modality : Modality or None
        What it is asked for, by LocalAI's model file.
    weights : tuple of str
        Its files below LocalAI's models folder; what lies elsewhere is left out.
    threads, gpu_layers : int or None
        As LocalAI's model file has them; no GPU layers (0) is a model on the CPU.
    exclusive : tuple of str
        LocalAI's ``concurrency_groups`` of it: no two models of one group are resident at once.
    weights_bytes : int or None
        The size of its files, where they can be looked at.
    revision : str
        What of its file decides how much memory it takes and how long it loads, as a short
        digest: with another one measurements begin anew. Empty: the file is not known.
    """

    model: ModelId
    footprint_bytes: int | None = None
    target_s: float | None = None
    priority: PriorityClass | None = None
    preload: bool = False
    preferred_backend: str | None = None
    pinned: bool = False
    slots: int | None = None
    on_host: bool = False
    """It runs on CPUs: it takes host memory, and none of a GPU's."""
    modality: Modality | None = None
    weights: tuple[str, ...] = ()
    threads: int | None = None
    gpu_layers: int | None = None
    exclusive: tuple[str, ...] = ()
    weights_bytes: int | None = None
    revision: str = ""
    warm_up: WarmUp = WarmUp.AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class StrainConfig:
    """From where on a machine is strained, so that prefetches and batches wait.

    Attributes
    ----------
    gpu_ratio, cpu_ratio : float
        Share of time in which they work.
    vram_ratio : float
        Share of GPU memory that is not free; never less than what our own orders may fill.
    load_window_s : float
        Loads that ended within this time are looked at.
    percentile : float
        At which latencies are looked at, and targets hold that name none of their own.
    """

    gpu_ratio: float = 0.85
    cpu_ratio: float = 0.75
    vram_ratio: float = 0.90
    load_window_s: float = 30.0
    percentile: float = 95.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringConfig:
    """How the machine is looked at.

    Attributes
    ----------
    gpu_metrics, cpu_metrics : tuple of str
        What is read beside memory.
    probes : tuple of str
        By name; empty: all there are.
    gpus : str or None
        Cards that LocalAI uses, as in ``CUDA_VISIBLE_DEVICES``; None: as its environment says.
    """

    interval_s: float = 5.0
    gpu_metrics: tuple[str, ...] = ("utilization", "memory.used", "temperature")
    cpu_metrics: tuple[str, ...] = ("utilization", "load_average", "memory.used", "pressure")
    probes: tuple[str, ...] = ()
    gpus: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerConfig:
    """Everything a policy is parametrised by. Few numbers, each with its reason.

    Attributes
    ----------
    policy : str
        ``headstart``, ``lru``, ``localai-lru``, ``idle-timeout`` or ``gdsf``.
    window_s : float
        Residency is valued by the probability of use within this time. About three or four
        load times: shorter forgets models that return soon, longer dilutes those that do.
    whole_sets : bool
        Whether victims are judged as a set, so that one that turns out not to be needed stays;
        False: one by one in the policy's order.
    parallel_loads : int
        Loads at once. Two hide one slow load behind another without fighting for the disk.
    prefetch : bool
        Whether to load ahead of demand at all.
    prefetch_horizon_s : float
        How far ahead a prefetch may aim; beyond a minute foresight gains nothing measurable.
    just_in_time : bool
        Whether a prefetch waits while its victims are likelier to be used than it to be late.
    prefetch_margin : float
        Gain over the victims' loss that pays for being wrong about both.
    prefetch_waste_target : float
        Share of prefetches that may go unused before the price of prefetching rises.
    guard : bool
        Whether plain rules are kept beside ``headstart``, and the best followed for a while
        when it makes more requests late than that would have.
    min_residency_s : float
        A model that was loaded is not evicted for a prefetch before this time.
    idle_timeout_s : float
        For ``idle-timeout``: unload after this long without use.
    default_target_s : float
        Latency target of models without an SLA.
    reserve_ratio : float
        Share of the budget that orders leave free.
    budget_bytes : int or None
        Upper bound on the memory our orders fill on each node; None: what the probe says.
    host_budget_bytes : int or None
        The same of host RAM, where models sit in it besides GPUs; None: what the probe says.
    tick_s : float
        The longest time between two runs of a controller; a planner may ask for less often.
    turn_s : float or None
        A busy model whose place another one is waited for keeps it for so long; then it
        takes nothing new, and goes when its last request has ended. None: it is never made
        to go while it is busy.
    turn_drain_s : float
        How long it may take for its last request to end; else it stays for another turn.
    groups : mapping
        Groups by kind of work, by name; empty: models are not grouped.
    warm : WarmConfig or None
        Keeping weights in the page cache; None: nothing is kept.
    schedules : tuple of WarmUpSchedule
        When which models shall be resident.
    standby : frozenset of ModelId
        Models that are loaded again whenever there is room for them and nobody waits.
    """

    policy: str = "headstart"
    window_s: float = 45.0
    whole_sets: bool = True
    parallel_loads: int = 2
    prefetch: bool = True
    prefetch_horizon_s: float = 45.0
    just_in_time: bool = True
    prefetch_margin: float = 1.5
    prefetch_waste_target: float = 0.3
    guard: bool = True
    min_residency_s: float = 0.0
    idle_timeout_s: float = 900.0
    default_target_s: float = 2.0
    reserve_ratio: float = 0.2
    budget_bytes: int | None = None
    host_budget_bytes: int | None = None
    tick_s: float = 1.0
    turn_s: float | None = 15.0
    standby: frozenset[ModelId] = frozenset()
    turn_drain_s: float = 60.0
    groups: Groups = field(default_factory=dict)
    warm: WarmConfig | None = field(default_factory=WarmConfig)
    schedules: tuple[WarmUpSchedule, ...] = ()
    strain: StrainConfig = field(default_factory=StrainConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictorConfig:
    """How forecasts are made.

    Attributes
    ----------
    publish_s : float
        Every model's curve is renewed this often, and a model's own at its arrivals.
    expires_s : float
        A forecast counts as absent this long after it was made.
    max_models : int
        Models kept; beyond it the least recently seen is forgotten (and counted).
    lease_s : float
        Another predictor publishes after this long without the one that does.
    time_zone : str
        Whose time of day and weekends people keep to; an IANA name.
    without : tuple of str
        Experts that are not asked, by their names in ``predictor.models.experts``; to measure
        what each is worth.
    """

    publish_s: float = 10.0
    expires_s: float = 60.0
    max_models: int = 5000
    lease_s: float = 5.0
    time_zone: str = "UTC"
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """The data path.

    ``keys`` are plain ones that may do everything, ``callers`` have a name and bounds. Both
    empty: no key is asked for, LocalAI judges them.
    """

    host: str = "0.0.0.0"  # noqa: S104 - a gateway is there to be reached
    port: int = 8080
    nodes: tuple[NodeConfig, ...] = ()
    keys: tuple[str, ...] = field(default=(), repr=False)
    callers: tuple[CallerKey, ...] = field(default=(), repr=False)
    queue: QueueConfig = field(default_factory=QueueConfig)
    max_connections: int = 4_096
    """Read at start. Fewer where the process may not open so many files."""
    max_body_bytes: int = 2 * 1024**3
    spool_bytes: int = 1024**2
    keepalive_comments: bool = True
    keepalive_s: float = 15.0
    health_check_agents: tuple[str, ...] = ()
    """Patterns of the ``User-Agent`` of callers whose inference is no demand."""
    expose_topology: bool = False
    connect_timeout_s: float = 5.0
    first_byte_timeout_s: float = 600.0
    between_bytes_timeout_s: float = 300.0
    load_answer_timeout_s: float = 1.0
    min_load_budget_s: float = 60.0
    slots: Mapping[ModelId, int] = field(default_factory=dict)
    """Requests of one model that run at once; a model that is left out has no limit here."""
    drains_on_leave: frozenset[ModelId] = frozenset()
    """Models whose answers are read to their end when their caller leaves, not cut."""
    shutdown_grace_s: float = 30.0
    control_url: str | None = None
    """Where files, batches and background jobs are served; None: by LocalAI, if it can."""
    balancing: BalancingConfig = field(default_factory=BalancingConfig)
    timeouts: Mapping[ModelId, TimeoutConfig] = field(default_factory=dict)
    """Limits that are set for a model; the ``*_timeout_s`` above hold for all others."""
    makes_variants: bool = False
    """Variants are made in LocalAI, at any moment: lists of models leave them out."""
    groups: Groups = field(default_factory=dict)
    """Groups by kind of work, by name."""

    @property
    def asks_for_keys(self) -> bool:
        """Whether callers need a key of ours."""
        return bool(self.keys or self.callers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlConfig:
    """The control API. Without ``admin_key`` writes are only taken from this machine."""

    host: str = "0.0.0.0"  # noqa: S104 - reached by browsers
    port: int = 8090
    admin_key: str | None = field(default=None, repr=False)
    open_reads: bool = True
    groups: Groups = field(default_factory=dict)
    """Groups by kind of work, by name, as they are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """The loop around the planner."""

    nodes: tuple[NodeConfig, ...] = ()
    profiles: Mapping[ModelId, ModelProfile] = field(default_factory=dict)
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    active_by_default: bool = False
    poll_s: float = 5.0
    lease_s: float = 7.0
    load_timeout_s: float = 600.0
    drain_timeout_s: float = 5.0
    batch_slots: int = 8
    """Lines of batches that may run at once when no realtime request does."""
    ladders: Mapping[ModelId, Ladder] = field(default_factory=dict)
    """What may stand in for each model that says so."""
    ladder_options: LadderOptions = field(default_factory=LadderOptions)
    """Rungs of all others."""
    preload: bool | tuple[ModelId, ...] = True
    """What LocalAI's model files mark with ``preload``: all of it, nothing, or these alone."""
    monitoring: MonitoringConfig = field(default_factory=MonitoringConfig)
    scaling: ScalingConfig = field(default_factory=ScalingConfig)
    discovery: DiscoveryConfig = field(default_factory=DiscoveryConfig)
    """Of instances behind a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersConfig:
    """Background work.

    Attributes
    ----------
    gateway_key : str or None
        The key that workers show to the gateway, where it asks for one.
    webhook_secret : str or None
        What calls of webhooks are signed with; None: they are not signed.
    webhooks_to_private : bool
        Whether webhooks may be in our own network.
    retention_cron, time_zone : str
        When logs, files and batches are tidied up: a cron line, in the time of this zone.
    backtest_cron, retrain_cron, profiles_cron : str
        When forecasts are judged, when a challenger is trained, and when what was measured of
        models is gone through; ``off``: never.
    max_processes : int
        Processes of one queue at most, where one machine runs all of them.
    files_url : str or None
        Object store for the files of batches, such as ``s3://bucket/headstart``; None: on disk.
    files_max_bytes : int
        Files of batches together; beyond it none is taken.
    """

    gateway_key: str | None = field(default=None, repr=False)
    webhook_secret: str | None = field(default=None, repr=False)
    webhooks_to_private: bool = False
    retention_cron: str = "17 3 * * *"
    time_zone: str = "UTC"
    backtest_cron: str = "37 2 * * *"
    retrain_cron: str = "7 4 * * 1,4"
    profiles_cron: str = "47 3 * * *"
    max_processes: int = 4
    files_url: str | None = None
    files_max_bytes: int = 10 * 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQueueConfig:
    """One queue of background jobs. Its times are real seconds, whatever the time scale.

    Attributes
    ----------
    capacity : int
        Jobs that may wait; beyond it an enqueue is refused.
    run_limit_s : int
        A run that takes longer is ended and counts as failed.
    crash_retries : int
        How often a job is run again after the process that ran it died.
    result_ttl_s, failure_ttl_s : int
        How long a job is known after it finished or failed.
    """

    name: str
    capacity: int
    run_limit_s: int = 3600
    crash_retries: int = 3
    result_ttl_s: int = 24 * 3600
    failure_ttl_s: int = 7 * 24 * 3600
