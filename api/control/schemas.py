"""What the control API says and takes, as people see it. ``null`` means not known, never zero."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from api.control.base_schemas import A_NUMBER
from api.control.base_schemas import Asked as Asked
from api.control.base_schemas import Deleted as Deleted
from api.control.base_schemas import ErrorBody as ErrorBody
from api.control.base_schemas import ErrorDetail as ErrorDetail
from api.control.base_schemas import Page as Page
from api.control.base_schemas import Schema as Schema
from api.control.forecast_schemas import BucketView as BucketView
from api.control.forecast_schemas import ForecastView as ForecastView
from api.control.forecast_schemas import HistoryView as HistoryView
from api.control.forecast_schemas import HorizonView as HorizonView
from api.control.forecast_schemas import NextUseView as NextUseView
from api.control.forecast_schemas import ProbabilityView as ProbabilityView
from api.control.forecast_schemas import QuantileView as QuantileView
from api.control.forecast_schemas import SignalView as SignalView
from contracts.events import LoadCause, PriorityClass
from contracts.memory import FootprintSource, PlaceKind
from contracts.plan import Outcome
from contracts.reasons import Reason
from contracts.world import Mode, Residency, Tier


class SlaBody(Asked):
    """A latency target to set."""

    target_s: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False), A_NUMBER] = Field(
        description="Seconds to the first byte of content, queue and load included."
    )
    percentile: Annotated[float, Field(ge=1, le=99.99, allow_inf_nan=False), A_NUMBER] = 95.0
    priority: PriorityClass = Field(default=PriorityClass.REALTIME, alias="class")
    weight: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False), A_NUMBER] = 1.0


class SlaView(Schema):
    """A latency target, and how well it was met over the last hour."""

    object: Literal["sla"] = "sla"
    id: str
    model: str
    target_s: float
    percentile: float
    priority: PriorityClass = Field(serialization_alias="class")
    weight: float
    source: Literal["set", "configured"] = Field(
        description="Whether somebody set it through the API, or the configuration has it."
    )
    attainment_ratio: float | None = None
    judged: int = 0


class ModelView(Schema):
    """One model: where it is, what it takes, who uses it."""

    object: Literal["model"] = "model"
    id: str
    node: str
    residency: Residency
    residency_since_s: float
    in_flight: int
    waiting: int
    arrivals: int
    last_used_at_s: float | None
    pinned: bool
    footprint_bytes: int | None
    footprint_source: FootprintSource | None = Field(default=None, description="Who says so.")
    footprint_places: dict[str, int] = Field(
        default={}, description="By card (its UUID) and host RAM, where that is known."
    )
    needs_more_than_bytes: int | None = Field(
        default=None, description="So much was free when its last load failed for memory."
    )
    occupied_bytes: int
    load_s: float | None
    cooldown_until_s: float | None
    load_cause: LoadCause | None
    used_since_load: bool
    aliases: list[str] = Field(default=[])
    target_s: float = Field(description="What its requests are judged by: its own, or the default.")
    attainment_ratio: float | None = None
    judged: int = 0
    sla: SlaView | None = None
    stale: bool = False
    tier: Tier = Field(Tier.UNKNOWN, description="From where a load of it would come now.")
    weights_bytes: int | None = None
    cached_ratio: float | None = None
    group: str = ""
    on_host: bool = Field(
        default=False, description="It runs on CPUs, beside the GPUs of its node."
    )
    scheduled_at_s: float | None = Field(None, description="When a schedule wants it resident.")


class ActionView(Schema):
    """What became of an operator's wish."""

    object: Literal["model.action"] = "model.action"
    model: str
    action: Literal["load", "unload", "pin", "unpin"]
    status: Literal["accepted", "already", "done"]
    message: str


class EvidenceView(Schema):
    """One number that a decision rests on; its name carries the unit."""

    name: str
    value: float | str | None


class DecisionView(Schema):
    """One decision: what was decided about what, and why."""

    object: Literal["decision"] = "decision"
    id: str
    cursor: str | None
    made_at_s: float
    policy: str
    subject: str
    outcome: Outcome
    reason: Reason
    sentence: str = Field(description="The decision and its reason in plain words.")
    explanation: str
    evidence: list[EvidenceView]
    would_change: list[str] = Field(
        default=[], description="What would have turned it the other way, as far as is known."
    )
    beside: list[DecisionView] = Field(
        default=[], description="What else was decided in the same run; only of a single one."
    )


class ModeBody(Asked):
    """The mode to change to."""

    mode: Mode


class ModeView(Schema):
    """``mode`` is what the controller does now, ``wanted`` what somebody set (null: nobody)."""

    object: Literal["mode"] = "mode"
    mode: Mode | None
    wanted: Mode | None
    stale: bool = False


class QueueView(Schema):
    """Requests of one class that wait."""

    object: Literal["queue"] = "queue"
    id: str
    waiting: int
    capacity: int | None
    oldest_wait_s: float | None


class NodeWarningView(Schema):
    """A setting of a LocalAI that works against the plan."""

    setting: str
    value: str
    problem: str
    remedy: str = Field(description="What to do about it. Headstart changes no settings there.")


class PeerView(Schema):
    """Another machine that a LocalAI works with."""

    name: str
    kind: str = Field(description="`worker`, `federated`, `llama_cpp_worker` or `mlx_worker`.")
    online: bool
    memory_used_ratio: float | None
    models: int | None


class PlaceView(Schema):
    """One card or the host's RAM."""

    id: str
    kind: PlaceKind
    total_bytes: int | None
    used_bytes: int | None
    used_by_others_bytes: int
    occupied_bytes: int


class UnseenView(Schema):
    """Memory of a model that was stopped, which the probe does not show as free."""

    model: str
    held_bytes: int
    since_s: float


class InstanceView(Schema):
    """An instance that was found behind a name."""

    address: str | None = Field(description="Null: it is at the name itself, none is found yet.")
    known_since_s: float
    missing_since_s: float | None = Field(description="Its address is not found since then.")
    leaving: bool = Field(description="Nothing new is sent there.")
    primary: bool = Field(description="Lists, UI and admin calls go to it.")


class NodeView(Schema):
    """One LocalAI instance and its memory."""

    object: Literal["node"] = "node"
    id: str
    alive: bool
    seen_at_s: float | None
    budget_bytes: int | None
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    used_by_others_bytes: int
    occupied_bytes: int = Field(description="What our models take of the budget now.")
    model_limit: int | None
    resident_models: int
    version: str | None = Field(default=None, description="LocalAI's own.")
    calls: dict[str, str] = Field(
        default={},
        description="Each call that is not the same everywhere: `yes`, `absent`, or `refused` to "
        "our key.",
    )
    warnings: list[NodeWarningView] = Field(default=[])
    peers: list[PeerView] = Field(default=[])
    sync_s: float | None = Field(default=None, description="How long the last poll took.")
    call_p95_s: float | None = Field(
        default=None, description="95th percentile of its last hundred short calls."
    )
    discovery_s: float | None = Field(
        default=None, description="How long it took to look up the instances behind its name."
    )
    instance: InstanceView | None = Field(
        default=None, description="Of one that comes and goes; null: it is configured by itself."
    )
    places: list[PlaceView] = Field(default=[], description="Its cards and its host RAM.")
    unseen: list[UnseenView] = Field(
        default=[], description="Models that were stopped and whose memory is not back."
    )
    leaked_bytes: int = Field(
        default=0, description="What unloads have given back too little, in all."
    )


class ComparisonView(Schema):
    """What another policy would have done on the same requests."""

    object: Literal["comparison"] = "comparison"
    id: str
    policy: str
    figures: dict[str, float]
    arrivals: float | None
    cold_starts: float | None = Field(description="Requests that would have met a cold model.")
    our_cold_starts: float | None = Field(description="Those that did, of as many arrivals.")
    avoided_cold_starts: float | None
    method: Literal["beside", "shadow", "ab"] = Field(
        description="Counted beside real requests, played in a ghost, or taken turns with."
    )
    our_late_ratio: float | None = Field(
        description="Share of requests that waited past their target under the configured policy."
    )
    late_ratio: float | None = Field(description="The same under this one.")
    difference: float | None = Field(description="Above 0 the configured policy is better.")
    low: float | None = Field(description="With 95 % confidence the difference is at least this.")
    high: float | None = Field(description="And at most this.")
    sure: float | None = Field(description="How sure it is that the configured one is better.")
    sentence: str = Field(description="Which is better, by how much, and how sure that is.")


class PolicyView(Schema):
    """One policy that a deployment can be set to."""

    object: Literal["policy"] = "policy"
    id: str
    summary: str
    configured: bool
    deciding: bool = Field(description="In mode ab the one whose turn it is.")
    late_ratio: float | None = Field(
        description="Share of requests that its ghost made late; null: it was not in the shadow."
    )
    loads: float | None


class JobQueueView(Schema):
    """Background jobs of one queue, by state."""

    object: Literal["job_queue"] = "job_queue"
    id: str
    counts: dict[str, int]


class JobView(Schema):
    """One background job."""

    object: Literal["job"] = "job"
    id: str
    status: dict[str, Any]


class PrefetchView(Schema):
    """How prefetches fared."""

    started: int
    used: int
    wasted: int


class SummaryView(Schema):
    """The headline figures."""

    object: Literal["summary"] = "summary"
    now_s: float
    time_scale: float
    mode: Mode | None
    mode_wanted: Mode | None
    stale: bool
    stale_reason: str | None
    snapshot_age_s: float | None
    forecast_age_s: float | None
    requests: int
    counting_since_s: float | None
    cold_requests: int
    failed_requests: int
    cold_ratio: float | None = Field(description="Cold requests among those that were dispatched.")
    comparison: ComparisonView | None
    prefetches: PrefetchView | None
    attainment_ratio: float | None
    judged: int
    models_hot: int | None
    models_known: int | None
    in_flight: int | None
    waiting: int | None


DecisionView.model_rebuild()
