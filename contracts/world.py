"""What is the case: one frozen snapshot that every decision is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from contracts.events import LoadCause, PriorityClass
from contracts.ids import ModelId, NodeId, RequestId
from contracts.instances import Instance
from contracts.memory import FootprintSource, PlaceStatus, Split, UnseenMemory
from contracts.node_facts import NodeFacts
from contracts.readings import ProbeReading
from contracts.reasons import Reason
from contracts.strains import GpuYield as GpuYield
from contracts.strains import LoadTime as LoadTime
from contracts.strains import Strain as Strain


class Residency(StrEnum):
    """Where a model's weights are, as far as we know. Transitions: ``controller/lifecycle.py``."""

    COLD = "cold"
    LOADING = "loading"
    HOT = "hot"
    DRAINING = "draining"
    """Hot, but gateways send it nothing new; it is unloaded once nothing is in flight."""
    UNLOADING = "unloading"
    """The unload was ordered; its memory counts as used until the end is seen."""
    FAILED = "failed"
    """The last load failed; ``cooldown_until_s`` says when the next may be tried."""


OCCUPIES_MEMORY = frozenset(
    {Residency.LOADING, Residency.HOT, Residency.DRAINING, Residency.UNLOADING}
)
"""A model holds its footprint from the moment its load starts until its unload has ended."""


class Mode(StrEnum):
    """What the controller does with its decisions."""

    OBSERVE = "observe"
    """Record them; order nothing. LocalAI's own rules hold."""
    SHADOW = "shadow"
    """As ``OBSERVE``, and every policy plays the same requests in a ghost of this world."""
    AB = "ab"
    """Ordered; two policies take turns in slices of time, and are compared."""
    ACTIVE = "active"

    @property
    def orders(self) -> bool:
        """Whether decisions are carried out."""
        return self in (Mode.ACTIVE, Mode.AB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sla:
    """A latency target: ``percentile`` of requests start answering within ``target_s``.

    The time counts to the first byte of content for streams and to the end for others, with
    queue and load included. ``weight`` scales what a second of waiting for this model costs.
    """

    model: ModelId
    target_s: float
    percentile: float = 95.0
    priority: PriorityClass = PriorityClass.REALTIME
    weight: float = 1.0


class Tier(StrEnum):
    """From where a model would be loaded."""

    HOT = "hot"
    """It is resident."""
    WARM = "warm"
    """Its weights are in the page cache."""
    COLD = "cold"
    UNKNOWN = "unknown"
    """Nobody can see where its weights are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmth:
    """Where the weights of one model are, on the host of its node.

    Attributes
    ----------
    weights_bytes : int
        Its files together.
    cached_bytes : int or None
        What of them is in the page cache; None: we may not see it.
    is_warming : bool
        They are being read ahead.
    warmed_at_s : float or None
        When they were read ahead last; None: not since we look.
    """

    model: ModelId
    weights_bytes: int
    cached_bytes: int | None = None
    seen_at_s: float = 0.0
    is_warming: bool = False
    warmed_at_s: float | None = None

    @property
    def cached_ratio(self) -> float | None:
        """Share of the files in the page cache; None: not seen, or there is nothing to see."""
        if self.cached_bytes is None or not self.weights_bytes:
            return None
        return min(1.0, self.cached_bytes / self.weights_bytes)


WARM_RATIO = 0.95
"""From this share of its files in the cache on a model is warm: the rest is a moment's reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Memory of the machine whose page cache holds a node's weights."""

    total_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledUse:
    """When a schedule wants a model resident: the window that runs, or the next one."""

    starts_at_s: float
    ends_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """One model on its node.

    Attributes
    ----------
    in_flight : int
        Requests that LocalAI works on, over all gateways.
    waiting : int
        Requests that a gateway holds until the model is resident.
    footprint_bytes : int or None
        Memory it takes while resident; None: not known.
    load_s : float or None
        Expected load time; None: never measured and nothing to estimate it from.
    residency_since_s : float
        When it entered its present residency.
    last_used_at_s, last_realtime_at_s : float or None
        The last use by anybody, and by a realtime request; None: not since we look.
    wanted_since_s : float or None
        Arrival of the oldest request that waits for a load; the order of demand loads.
    failure : str
        What LocalAI said when the last load failed.
    load_cause, used_since_load :
        Of the present residency: what ordered it, and whether a request came since.
    spared_until_s : float or None
        An unload was given up since somebody used it after all; none is tried before.
    preemptible : int
        Those in flight that gateways may cancel for a realtime request.
    kept_out : bool
        An operator unloaded it: it is not prefetched until somebody asks for it again.
    exclusive : tuple of str
        No other model that shares one of these names is resident on its node with it.
    split : mapping
        Its footprint by place; empty: not told, so that the one number holds.
    footprint_source : FootprintSource or None
        Where both come from; None: not told.
    out_of_memory_bytes : int or None
        Its last load failed for memory though so much was free: it needs more (0: it is not
        known how much was). None: it did not. Forgotten at ``out_of_memory_until_s``.
    unload_failures : int
        Unloads in a row that were given up; each makes the next try later.
    unload_failure : str
        What LocalAI said when it did not stop it; empty: it did, or was not told to.
    yielded : int
        How often it was let go for another program since somebody used it; above 0 it comes
        back when there is room again.
    on_host : bool
        It runs on CPUs: its footprint is host memory, and it takes none of a GPU's.
    group : str
        Its group by kind of work; empty: none.
    """

    model: ModelId
    node: NodeId
    residency: Residency = Residency.COLD
    residency_since_s: float = 0.0
    in_flight: int = 0
    waiting: int = 0
    wanted_since_s: float | None = None
    last_used_at_s: float | None = None
    last_realtime_at_s: float | None = None
    arrivals: int = 0
    pinned: bool = False
    footprint_bytes: int | None = None
    load_s: float | None = None
    cooldown_until_s: float | None = None
    failure: str = ""
    load_cause: LoadCause | None = None
    used_since_load: bool = False
    spared_until_s: float | None = None
    kept_out: bool = False
    preemptible: int = 0
    on_host: bool = False
    group: str = ""
    exclusive: tuple[str, ...] = ()
    split: Split = field(default_factory=dict)
    footprint_source: FootprintSource | None = None
    out_of_memory_bytes: int | None = None
    out_of_memory_until_s: float | None = None
    unload_failures: int = 0
    unload_failure: str = ""
    yielded: int = 0

    @property
    def occupied_bytes(self) -> int:
        """Bytes that count against the budget now; an unknown footprint counts as 0."""
        return (self.footprint_bytes or 0) if self.residency in OCCUPIES_MEMORY else 0

    @property
    def needed_bytes(self) -> int:
        """Room that a load of it needs: more than was free when one failed for memory.

        An unknown footprint counts as 0.
        """
        known_bytes = self.footprint_bytes or 0
        if not self.out_of_memory_bytes:
            return known_bytes
        return max(known_bytes, self.out_of_memory_bytes + self.out_of_memory_bytes // 20 + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One LocalAI instance.

    Attributes
    ----------
    budget_bytes : int or None
        What our orders may fill in total; None: unknown, so nothing is evicted for room.
    used_by_others_bytes : int
        What the probe shows beyond our own models.
    model_limit : int or None
        LocalAI's own limit on resident models, kept as one more bound.
    accelerator : str
        What its models run on, as configured; empty: not told.
    lists : tuple of ModelId
        Models that it can serve, by name, whether they are at home there or not.
    residents : tuple of ModelId
        Models that its last poll found resident, and what is known since.
    reading : ProbeReading or None
        What its probes told at the last poll, card by card.
    places : tuple of PlaceStatus
        Its cards and its host RAM as budgets see them; empty: only the one number is told.
    unseen : tuple of UnseenMemory
        Models that were stopped and whose memory the probe does not show yet.
    leaked_bytes : int
        What unloads gave back too little, all together: the drift of the idle floor.
    facts : NodeFacts or None
        Its version, calls, settings that fight the plan, and peers; None: not looked up yet.
    levels : mapping
        Figures of its machine, smoothed over some readings.
    strains : tuple of Strain
        Those of them that prefetches and batches wait for.
    strained_at_s : float or None
        When the newest reading that is in ``levels`` was taken.
    load_latency_s : float or None
        What the loads of the window took, at the percentile that is watched; None: none ended.
    leaving : bool
        Its address is gone from behind its name: nothing new is sent or planned there.
    """

    node: NodeId
    alive: bool = False
    seen_at_s: float | None = None
    budget_bytes: int | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    used_by_others_bytes: int = 0
    model_limit: int | None = None
    accelerator: str = ""
    lists: tuple[ModelId, ...] = ()
    residents: tuple[ModelId, ...] = ()
    reading: ProbeReading | None = None
    places: tuple[PlaceStatus, ...] = ()
    unseen: tuple[UnseenMemory, ...] = ()
    leaked_bytes: int = 0
    facts: NodeFacts | None = None
    levels: Mapping[Reason, float] = field(default_factory=dict)
    strains: tuple[Strain, ...] = ()
    strained_at_s: float | None = None
    load_latency_s: float | None = None
    leaving: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """Requests of one class that wait in all gateways."""

    priority: PriorityClass
    waiting: int
    capacity: int | None = None
    oldest_wait_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """A request that has not ended.

    ``source`` is the gateway that holds it, ``node`` where it was sent (None: not yet).
    """

    model: ModelId
    source: str
    received_at_s: float
    dispatched_at_s: float | None = None
    priority: PriorityClass = PriorityClass.REALTIME
    node: NodeId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchTally:
    """How prefetches fared: one that is unloaded before a use is wasted."""

    started: int = 0
    used: int = 0
    wasted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningTally:
    """How long the controller took to decide, since its term began, in real seconds.

    ``recent_p95_s`` and ``recent_max_s`` are of the last runs; None before the first.
    """

    runs: int = 0
    total_s: float = 0.0
    recent_p95_s: float | None = None
    recent_max_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSnapshot:
    """Everything that the planner may know. ``generation`` grows with each fold."""

    taken_at_s: float
    generation: int = 0
    mode: Mode = Mode.OBSERVE
    nodes: Mapping[NodeId, NodeStatus] = field(default_factory=dict)
    models: Mapping[ModelId, ModelStatus] = field(default_factory=dict)
    slas: Mapping[ModelId, Sla] = field(default_factory=dict)
    queues: tuple[QueueStatus, ...] = ()
    prefetches: PrefetchTally = PrefetchTally()
    demand_loads: int = 0
    """Loads that a waiting request caused, since the controller started: its cold starts."""
    requests: Mapping[RequestId, OpenRequest] = field(default_factory=dict)
    """Requests to known models that have not ended."""
    operator_loads: frozenset[ModelId] = frozenset()
    operator_unloads: frozenset[ModelId] = frozenset()
    position: str = "0"
    """The last entry of the event log that is folded in: where a restart goes on."""
    preloads: frozenset[ModelId] = frozenset()
    """Models that the configuration wants resident at start, until each was loaded once."""
    wishes: Mapping[ModelId, float] = field(default_factory=dict)
    """Models that a request could do with although it does not wait for them, and until when:
    the lower rungs that would answer it sooner, and the model that one of them answered for."""
    scheduled: Mapping[ModelId, ScheduledUse] = field(default_factory=dict)
    """When schedules want which models resident."""
    warmth: Mapping[ModelId, Warmth] = field(default_factory=dict)
    """Where the weights of models are, whose files can be found."""
    hosts: Mapping[NodeId, HostMemory] = field(default_factory=dict)
    """Memory of the machines whose files can be found."""
    gpu_yield: GpuYield | None = None
    """What the GPU was handed over for by hand."""
    recent_loads: tuple[LoadTime, ...] = ()
    """Loads that were measured, the newest last; bounded."""
    quiet_until_s: float | None = None
    """A schedule keeps the GPU for others until then; None: none does."""
    planning: PlanningTally | None = None
    """None: no controller has told."""
    instances: Mapping[NodeId, Instance] = field(default_factory=dict)
    """Nodes that were found behind a name, of those that are not configured one by one."""

    def on_node(self, node: NodeId) -> tuple[ModelStatus, ...]:
        """The models of one node, by name."""
        here = (status for status in self.models.values() if status.node == node)
        return tuple(sorted(here, key=_name))


def _name(status: ModelStatus) -> ModelId:
    return status.model


def tier_of(status: ModelStatus, warmth: Warmth | None) -> Tier:
    """From where a load of it would come now."""
    if status.residency in (Residency.HOT, Residency.DRAINING):
        return Tier.HOT
    ratio = None if warmth is None else warmth.cached_ratio
    if ratio is None:
        return Tier.UNKNOWN
    return Tier.WARM if ratio >= WARM_RATIO else Tier.COLD
