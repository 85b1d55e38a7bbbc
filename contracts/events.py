"""What happened: the telemetry that gateways and the controller append to the event log.

Each ``RequestReceived`` is followed by exactly one of ``RequestCompleted``,
``RequestFailed`` and ``RequestCancelled``. No event holds a prompt, an answer or a key;
clients appear as a digest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from contracts.ids import ModelId, NodeId, RequestId
from contracts.memory import Split
from contracts.readings import ProbeReading

SCHEMA_VERSION = 1
"""Version of every record that goes over Redis. Readers skip and count newer ones."""


class PriorityClass(StrEnum):
    """Who goes first. ``high``, ``medium`` and ``low`` in configuration mean these three."""

    REALTIME = "realtime"
    BATCH = "batch"
    BACKGROUND = "background"


class Origin(StrEnum):
    """Who caused a failed request."""

    CLIENT = "client"
    GATEWAY = "gateway"
    UPSTREAM = "upstream"


class RequestPhase(StrEnum):
    """How far a request had come when its caller left."""

    QUEUED = "queued"
    LOADING = "loading"
    DISPATCHED = "dispatched"
    STREAMING = "streaming"


class LoadCause(StrEnum):
    """Why a load was ordered."""

    DEMAND = "demand"
    PREFETCH = "prefetch"
    OPERATOR = "operator"
    GATEWAY = "gateway"
    """A gateway loaded it alone because no controller answered."""
    EXTERNAL = "external"
    """LocalAI did it behind our back."""
    SCHEDULE = "schedule"
    """A warm-up schedule wants it."""


class UnloadCause(StrEnum):
    """Why a model left memory."""

    EVICTED = "evicted"
    OPERATOR = "operator"
    IDLE = "idle"
    GATEWAY = "gateway"
    GHOST = "ghost"
    """Its process was dead while LocalAI still listed it."""
    EXTERNAL = "external"
    """LocalAI did it behind our back: its limit, watchdog or reclaimer, or somebody's call."""
    RESTART = "restart"
    """LocalAI began anew, so that everything was gone at once."""


class IntentKind(StrEnum):
    """A sign that a request may follow."""

    MODELS_LISTED = "models_listed"
    MODEL_PICKED = "model_picked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Fields that every event has.

    Attributes
    ----------
    event_id : str
        Unique; an event that arrives twice is counted once.
    at_s : float
        Epoch seconds on the writer's clock.
    source : str
        The process that wrote it, such as a gateway's id.
    """

    event_id: str
    at_s: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReceived(Event):
    """A gateway has read enough of an inference request to know its model, if it names one.

    ``is_retry``: its client asks again for what it was refused a moment ago, so that the two
    are one demand. ``is_deferrable``: it may be put back at any time, as our workers' are; when it
    comes is our own doing, so that nothing is to be forecast from it.
    """

    request_id: RequestId
    model: ModelId | None
    operation: str
    priority: PriorityClass
    client: str
    stream: bool
    is_retry: bool = False
    is_deferrable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDispatched(Event):
    """The request was sent to a node. ``cold``: its model was not resident on arrival.

    ``served_by``: the lower rung that it went to instead of its model; None: to its model.
    """

    request_id: RequestId
    model: ModelId | None
    node: NodeId
    queue_wait_s: float
    cold: bool
    served_by: ModelId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstTokenSent(Event):
    """The first byte of content reached the caller; ``ttft_s`` counts from arrival."""

    request_id: RequestId
    model: ModelId | None
    ttft_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCompleted(Event):
    """The whole answer was relayed. ``service_s`` is the part spent upstream.

    ``tokens_counted``: the answer told no usage, and ``output_tokens`` are the pieces of
    content that were counted in its stream. ``served_by``: as in ``RequestDispatched``; then
    ``service_s`` says nothing of the model itself.
    """

    request_id: RequestId
    model: ModelId | None
    status: int
    duration_s: float
    service_s: float
    input_tokens: int | None
    output_tokens: int | None
    tokens_counted: bool = False
    served_by: ModelId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFailed(Event):
    """The caller got an error, or a stream that ended early. ``status``: None if none was sent.

    Tokens are those of the part that was relayed, as in ``RequestCompleted``.
    """

    request_id: RequestId
    model: ModelId | None
    status: int | None
    error: str
    origin: Origin
    duration_s: float
    input_tokens: int | None = None
    output_tokens: int | None = None
    tokens_counted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCancelled(Event):
    """The caller left, or a request of lower class was preempted before its first byte.

    Tokens are those of the part that was relayed, as in ``RequestCompleted``. ``reason``:
    ``left`` or ``preempted``.
    """

    request_id: RequestId
    model: ModelId | None
    phase: RequestPhase
    duration_s: float
    input_tokens: int | None = None
    output_tokens: int | None = None
    tokens_counted: bool = False
    reason: str = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentSignal(Event):
    """Something that tends to come before a request, such as a UI that listed the models."""

    client: str
    kind: IntentKind
    model: ModelId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLoadStarted(Event):
    """A load was ordered, or LocalAI was seen to begin one."""

    model: ModelId
    node: NodeId
    cause: LoadCause


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLoaded(Event):
    """A model is resident. ``load_s`` is None where nobody measured it.

    ``footprint_bytes`` is what all measurements so far say, this one included, and ``split``
    the same by place. None and empty: not measured.
    """

    model: ModelId
    node: NodeId
    cause: LoadCause
    load_s: float | None
    footprint_bytes: int | None
    split: Split = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLoadFailed(Event):
    """A load ended without a resident model; LocalAI cools down for ``retry_after_s``.

    ``free_bytes``: what the probe showed as free before it; None: not told.
    """

    model: ModelId
    node: NodeId
    cause: LoadCause
    error: str
    retry_after_s: float | None
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUnloaded(Event):
    """A model left memory.

    Attributes
    ----------
    memory_seen : bool
        Whether the probe showed its memory as free; also true where no probe tells.
    freed_bytes : int or None
        By how much what is used fell; None: not looked at, or others moved meanwhile.
    """

    model: ModelId
    node: NodeId
    cause: UnloadCause
    memory_seen: bool = True
    freed_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObserved(Event):
    """What one poll of a node found.

    Attributes
    ----------
    resident, busy : tuple of ModelId
        Models that LocalAI lists, and those of them that its monitor calls busy.
    memory_total_bytes, memory_used_bytes : int or None
        GPU memory where the node has any, else host memory; None where it does not tell.
    model_limit : int or None
        LocalAI's own ``max_active_backends``; None where there is no limit.
    used_by_others_bytes : int or None
        GPU memory that is neither free nor LocalAI's, where a probe can tell; else it is what
        is used beyond the footprints of our models.
    reading : ProbeReading or None
        All that the node's probes told, without processes; the figures above follow from it.
    restarted : bool
        LocalAI began anew since the poll before: what was resident is gone, and so are cool-downs.
    """

    node: NodeId
    resident: tuple[ModelId, ...]
    busy: tuple[ModelId, ...]
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    model_limit: int | None
    used_by_others_bytes: int | None = None
    reading: ProbeReading | None = None
    restarted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLost(Event):
    """A node did not answer; what it held is unknown from here on."""

    node: NodeId
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeJoined(Event):
    """An instance of LocalAI came behind its name; ``address`` is where it is."""

    node: NodeId
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLeft(Event):
    """An instance is gone from behind its name, and is forgotten."""

    node: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionApplied(Event):
    """An ordered action reached the wanted end."""

    action_id: str
    kind: str
    subject: str
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFailed(Event):
    """An ordered action did not reach the wanted end.

    ``is_refused``: nothing of ours was in the way, LocalAI did not do it or did not answer.
    """

    action_id: str
    kind: str
    subject: str
    error: str
    is_refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackGiven(Event):
    """Somebody said how an answer was: ``score`` from 0 (bad) to 1 (good). No words are kept."""

    request_id: RequestId
    model: ModelId | None
    score: float


AnyEvent = (
    RequestReceived
    | RequestDispatched
    | FirstTokenSent
    | RequestCompleted
    | RequestFailed
    | RequestCancelled
    | IntentSignal
    | ModelLoadStarted
    | ModelLoaded
    | ModelLoadFailed
    | ModelUnloaded
    | NodeObserved
    | NodeLost
    | NodeJoined
    | NodeLeft
    | ActionApplied
    | ActionFailed
    | FeedbackGiven
)
