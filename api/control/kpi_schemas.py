"""Key figures, requests and explanations as people see them. ``null`` means not known."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.control.base_schemas import A_NUMBER
from api.control.schemas import Asked, DecisionView, Schema
from contracts.events import PriorityClass

WindowName = Literal["1h", "24h", "7d"]


class SpreadView(Schema):
    """How a time is spread, in seconds. Quantiles are right to six percent."""

    count: int
    mean_s: float | None
    p50_s: float | None
    p90_s: float | None
    p95_s: float | None
    p99_s: float | None
    greatest_s: float | None


class TrafficView(Schema):
    """Requests that ended within the window."""

    requests: int
    requests_per_s: float
    completed: int
    failed: int = Field(description="Through no fault of their caller.")
    refused: int = Field(description="By the caller's own doing: a bad body, an unknown model.")
    cancelled: int
    success_ratio: float | None
    cold: int
    cold_ratio: float | None
    judged: int
    met: int
    attainment_ratio: float | None
    apdex: float | None = Field(
        description="Satisfied, and half of those within four times the target, of all judged."
    )
    satisfaction_ratio: float | None = Field(description="Mean of the feedback that was given.")
    feedback: int
    input_tokens: int | None
    output_tokens: int | None
    violations: int | None = Field(
        description="Requests of this class that went before one of a higher class which had come "
        "before them for the same model; null for single models."
    )
    aged: int | None = Field(description="Those that went before a higher one by their age.")
    wait: SpreadView
    first_content: SpreadView
    duration: SpreadView


class LoadsView(Schema):
    """Loads and unloads within the window."""

    loads: int
    loads_per_h: float
    by_cause: dict[str, int]
    failed: int
    unloads: int
    unloads_per_h: float
    unloads_by_cause: dict[str, int]
    reloads: int = Field(description="Loads within five minutes of the model's last unload.")
    took: SpreadView
    prefetches_used: int
    prefetches_wasted: int
    precision: float | None = Field(description="Used, of the prefetches whose fate is known.")
    recall: float | None = Field(description="Needed loads that a prefetch had ready in time.")


class CostView(Schema):
    """What was held, and what came of it.

    A GPU second held is a second in which the models held all of a GPU's memory, or two in
    which they held half of it.
    """

    resident_s: float
    gpu_seconds: float | None
    gb_hours: float
    in_flight_mean: float | None = Field(
        description="Requests at once while resident, on average; above 1 where several run."
    )
    tokens_per_gpu_second: float | None
    requests_per_gpu_second: float | None
    tokens_per_gb_hour: float | None
    requests_per_gb_hour: float | None
    energy_j: float | None = Field(description="Of the GPUs; null where none tells its power.")
    tokens_per_kwh: float | None


class DecidingView(Schema):
    """How long the controller takes to decide, since its term began."""

    runs: int
    mean_s: float | None
    p95_s: float | None
    greatest_s: float | None


class BudgetView(Schema):
    """The error budget of a target over a week, and where it is heading."""

    percentile: float
    target_s: float
    allowed_ratio: float
    judged: int
    missed: int
    remaining_ratio: float | None = Field(description="Below 0 it is overdrawn.")
    burn_1h: float | None = Field(description="1: it lasts exactly as long as its window.")
    burn_6h: float | None
    exhausted_in_s: float | None
    expected_ratio: float | None = Field(description="Attainment expected in an hour.")
    breach: bool | None


class ModelKpis(Schema):
    """Key figures of one model."""

    model: str
    traffic: TrafficView
    by_class: dict[str, TrafficView]
    loads: LoadsView
    cost: CostView
    budget: BudgetView


class KpiView(Schema):
    """All key figures of one window."""

    object: Literal["kpis"] = "kpis"
    window: WindowName
    now_s: float
    counting_since_s: float | None
    total: TrafficView
    by_class: dict[str, TrafficView]
    loads: LoadsView
    cost: CostView
    deciding: DecidingView | None
    cold_starts_avoided: float | None = Field(
        description="Beside LocalAI's own LRU, or LRU; since the controller counts."
    )
    compared_with: str | None
    models: list[ModelKpis]
    stale: bool = False


class PanelSeries(Schema):
    """One line of a panel."""

    name: str
    values: list[float | None]
    latest: float | None


class PanelView(Schema):
    """One panel over time."""

    id: str
    title: str
    unit: str
    threshold: float | None
    series: list[PanelSeries]


class PanelsView(Schema):
    """The six panels; ``start_s`` is when the first bucket begins."""

    object: Literal["panels"] = "panels"
    window: WindowName
    start_s: float
    step_s: float
    data: list[PanelView]


class HeatRow(Schema):
    """One model over time, oldest first."""

    model: str
    arrivals: list[int]
    resident_ratio: list[float]


class HeatView(Schema):
    """Requests and residency of all models over time."""

    object: Literal["heat"] = "heat"
    window: WindowName
    start_s: float
    step_s: float
    data: list[HeatRow]


class PhaseView(Schema):
    """One part of a request's time."""

    name: Literal["queue", "load", "first_content", "rest", "upstream"]
    seconds: float


class RequestView(Schema):
    """One request: what became of it, and where its time went."""

    object: Literal["request"] = "request"
    id: str
    model: str | None
    operation: str
    priority: PriorityClass = Field(serialization_alias="class")
    stream: bool
    received_at_s: float
    ended_at_s: float | None
    outcome: Literal["open", "completed", "failed", "cancelled"]
    status: int | None
    error: str | None
    node: str | None
    cold: bool | None
    wait_s: float | None
    load_s: float | None
    first_content_s: float | None
    duration_s: float | None
    input_tokens: int | None
    output_tokens: int | None
    target_s: float | None
    met: bool | None
    feedback: float | None
    phases: list[PhaseView]
    sentence: str = Field(description="Why it took as long as it did.")
    decisions: list[DecisionView] = Field(
        default=[], description="What was decided about its model while it waited."
    )


class FactView(Schema):
    """One number; its name carries the unit."""

    name: str
    value: float | str | None


class VariantView(Schema):
    """A model that may answer in another's place."""

    model: str
    kind: str
    quantisation: str | None
    made: bool = Field(description="It was made by us, and goes when Headstart goes.")


class ExplainView(Schema):
    """Why a model is, or is not, loaded."""

    object: Literal["explanation"] = "explanation"
    id: str
    model: str
    sentences: list[str]
    facts: list[FactView]
    decisions: list[DecisionView]
    variants: list[VariantView] = Field(
        default=[], description="What may answer in its place, the best first."
    )
    stale: bool = False


class FeedbackBody(Asked):
    """How an answer was. One of the two is enough."""

    request_id: Annotated[str, Field(min_length=1, max_length=200)]
    score: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), A_NUMBER] | None = None
    rating: Literal["good", "bad"] | None = None


class FeedbackView(Schema):
    """Feedback that was taken; a later one on the same request replaces it."""

    object: Literal["feedback"] = "feedback"
    request_id: str
    model: str | None
    score: float


class SettingView(Schema):
    """One setting in force and where its value comes from; secrets are ``***``."""

    id: str
    value: object
    origin: str
