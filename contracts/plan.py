"""What shall be: actions that state the wanted end, and the decisions behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from contracts.events import LoadCause, PriorityClass, UnloadCause
from contracts.ids import ModelId, NodeId
from contracts.reasons import Reason
from contracts.world import Mode


class Outcome(StrEnum):
    """What came of a question."""

    CHANGE = "change"
    HOLD = "hold"
    ABSTAIN = "abstain"
    """Not enough is known. Never read as zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One answer of one policy about one subject, with the numbers it rests on.

    ``evidence`` is a short tuple of (name, value) pairs; names carry their unit.
    """

    policy: str
    subject: str
    outcome: Outcome
    reason: Reason
    evidence: tuple[tuple[str, float | str], ...] = ()
    decision_id: str = ""
    made_at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadModel:
    """The model is resident on ``node``. Already so: nothing happens.

    ``after`` names the models whose unloading makes the room for it.
    """

    action_id: str
    model: ModelId
    node: NodeId
    cause: LoadCause
    reason: Reason
    after: tuple[ModelId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadModel:
    """The model is not resident on ``node``: drained first, given up if it turns busy.

    ``drain_s`` is how long the drain waits for requests in flight to end by themselves (None:
    not at all); with ``preempt`` gateways cancel those of them that may be cancelled.
    """

    action_id: str
    model: ModelId
    node: NodeId
    cause: UnloadCause
    reason: Reason
    drain_s: float | None = None
    preempt: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PinModel:
    """The model is kept resident (or no longer kept)."""

    action_id: str
    model: ModelId
    pinned: bool
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmFile:
    """The model's weights are in the host's page cache; those of ``instead_of`` need not be."""

    action_id: str
    model: ModelId
    node: NodeId
    reason: Reason
    instead_of: tuple[ModelId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLimits:
    """How many requests of a class may run at once until ``valid_until_s``."""

    action_id: str
    priority: PriorityClass
    slots: int
    valid_until_s: float
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleTo:
    """``target`` has this many replicas."""

    action_id: str
    target: str
    replicas: int
    reason: Reason


Action = LoadModel | UnloadModel | PinModel | WarmFile | SetLimits | ScaleTo


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one run of the planner wants. ``based_on``: the world's generation."""

    plan_id: str
    made_at_s: float
    based_on: int
    mode: Mode
    actions: tuple[Action, ...]
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Requests for one model that came within a load time of the first of them.

    Attributes
    ----------
    begun_s : float
        When the first of the present wave came.
    requests : int
        How many came in it so far.
    usual : float
        How many a wave has, from those that ended.
    """

    begun_s: float
    requests: int
    usual: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ghost:
    """A plain rule that is kept beside the policy: what it would hold, and how it fares.

    Attributes
    ----------
    ready_at_s : mapping
        Models that it holds, with when their load ended or will end.
    value : mapping
        By what it evicts, least first, of each model that was asked for.
    counts : mapping
        Requests so far, where its values count them.
    inflation : float
        Value of the last one that went, where its values rise by it.
    load_ends_s : tuple of float
        When each of its load slots is free.
    lead, spread : float
        Decayed sums over requests of (late with us - late with it), and of its square.
    """

    ready_at_s: Mapping[ModelId, float] = field(default_factory=dict)
    value: Mapping[ModelId, float] = field(default_factory=dict)
    counts: Mapping[ModelId, int] = field(default_factory=dict)
    inflation: float = 0.0
    load_ends_s: tuple[float, ...] = ()
    lead: float = 0.0
    spread: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Which rule is followed instead of the policy, and until when; ``""``: the policy is.

    Attributes
    ----------
    follow_s : float
        How long the next rule that wins will be followed.
    tripped : int
        How often one was.
    """

    ghosts: Mapping[str, Ghost] = field(default_factory=dict)
    following: str = ""
    until_s: float = 0.0
    follow_s: float = 0.0
    tripped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerState:
    """All that a policy remembers between runs; it goes in and comes out, nothing else is kept.

    Attributes
    ----------
    sequence : int
        Runs so far; names plans and actions.
    prefetch_price, priced_at_s : float
        What a prefetch must gain beyond its victims' loss, in requests made late, as it was
        at ``priced_at_s``; it fades from there. None: not priced yet.
    settled_used, settled_wasted : int
        Prefetches that ``prefetch_price`` already accounts for.
    gdsf_inflation : float
        L of Greedy-Dual-Size-Frequency.
    gdsf_value : mapping
        H of each model under the same.
    seen_arrivals : mapping
        Arrivals per model that ``gdsf_value``, ``waves`` already account for.
    waves : mapping
        How many requests come at a time, of each model that was asked for.
    guards : mapping
        Of each node, the plain rules that the policy is measured against.
    memo : object
        Derived from what was passed in, kept so that it need not be derived again: it decides
        nothing, and two states that differ in it alone are equal.
    last_said : mapping
        Subject to (outcome, reason): a hold is recorded once when it begins, not on every run.
    """

    sequence: int = 0
    prefetch_price: float | None = None
    priced_at_s: float = 0.0
    settled_used: int = 0
    settled_wasted: int = 0
    gdsf_inflation: float = 0.0
    gdsf_value: Mapping[ModelId, float] = field(default_factory=dict)
    seen_arrivals: Mapping[ModelId, int] = field(default_factory=dict)
    last_said: Mapping[str, tuple[Outcome, Reason]] = field(default_factory=dict)
    waves: Mapping[ModelId, Wave] = field(default_factory=dict)
    guards: Mapping[NodeId, Guard] = field(default_factory=dict)
    memo: object = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """A plan, the state to pass in next time, and when to ask again if nothing happens before."""

    plan: Plan
    state: PlannerState
    next_tick_at_s: float
