"""What the controller publishes and gateways obey: where each model is, and may be sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from contracts.events import PriorityClass
from contracts.ids import ModelId, NodeId
from contracts.reasons import Reason
from contracts.variants import Ladder
from contracts.world import Mode, Residency


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRoute:
    """Where one model is served.

    Attributes
    ----------
    expected_load_s : float or None
        Measured or estimated; None: unknown.
    load_started_at_s : float or None
        When the load that runs now began.
    failure : str
        What LocalAI said when the last load failed; empty where it did not, or said nothing.
    footprint_bytes : int or None
        What it takes of the memory that its node's ``free_bytes`` is about: 0 for a model on the
        host of a node with GPUs. None: not known.
    slots : int or None
        Requests that LocalAI serves at once, as its own configuration says; None: not told.
    group : str
        Its group by kind of work; empty: none.
    cores : float or None
        Cores that one request of it takes; None: it does not run on CPUs, as far as is known.
    places : mapping
        Every node that knows the model, and its residency there. ``node`` is the model's home:
        the one that loads are ordered on. Empty: only the home is known.
    held : Reason or None
        Why the controller does not load it although somebody would have it; None: nothing
        holds it, or nobody would.
    """

    model: ModelId
    node: NodeId
    residency: Residency
    expected_load_s: float | None = None
    load_started_at_s: float | None = None
    cooldown_until_s: float | None = None
    last_used_at_s: float | None = None
    footprint_bytes: int | None = None
    pinned: bool = False
    failure: str = ""
    slots: int | None = None
    places: Mapping[NodeId, Residency] = field(default_factory=dict)
    held: Reason | None = None
    group: str = ""
    cores: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoute:
    """One node as gateways need to know it.

    Attributes
    ----------
    free_bytes : int or None
        Room for more models, for the gateway's last resort when no controller answers.
    accelerator : str
        What its models run on; empty: not told.
    in_flight : int
        Requests that all gateways together have there.
    address : str
        Of an instance that was found behind a name; empty: it is configured.
    """

    node: NodeId
    alive: bool
    free_bytes: int | None
    accelerator: str = ""
    in_flight: int = 0
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingTable:
    """The whole table, replaced at once. A gateway keeps the last one while nothing newer comes.

    ``token`` is the fencing token of the controller that wrote it: a table with a smaller
    token than the last one is ignored. ``draining`` maps a model to the drain that gateways
    acknowledge; of those in ``preempting`` they also cancel what may be cancelled.
    """

    token: int
    made_at_s: float
    mode: Mode
    models: Mapping[ModelId, ModelRoute] = field(default_factory=dict)
    nodes: Mapping[NodeId, NodeRoute] = field(default_factory=dict)
    draining: Mapping[ModelId, str] = field(default_factory=dict)
    aliases: Mapping[str, ModelId] = field(default_factory=dict)
    classes: Mapping[ModelId, PriorityClass] = field(default_factory=dict)
    preempting: frozenset[ModelId] = frozenset()
    ladders: Mapping[ModelId, Ladder] = field(default_factory=dict)
    """What may stand in for a model, with the rungs that LocalAI lists alone."""
    primary: NodeId | None = None
    """Of nodes that were found behind a name, the one for lists, UI and admin calls."""
