"""Which node a request goes to, where several know its model. Pure; see docs/routing.md.

First a filter, step by step; a step that would leave nobody is passed over, but for the first:

1. its circuits let a request through (nobody: there is no backend),
2. it is alive, as far as the controller knows,
3. the model is resident there; where it is nowhere, only its home remains,
4. it has a free slot for the model,
5. it has a GPU; for background requests CPUs stay in (by ``resource-aware`` only).

Of those that remain ``resource-aware`` takes the greatest score

    0.6 (1 - load) + 0.3 affinity + 0.1 priority

and ``weighted-round-robin`` shares requests out by the weights of their accelerators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from contracts.events import PriorityClass
from contracts.ids import NodeId

RESOURCE_AWARE = "resource-aware"
WEIGHTED_ROUND_ROBIN = "weighted-round-robin"

CPU = "cpu"
HALF_LOADED_AT = 4
"""Without known slots a node with so many requests counts as half loaded."""

LOAD_SHARE, AFFINITY_SHARE, PRIORITY_SHARE = 0.6, 0.3, 0.1
RESIDENT_SHARE, CLIENT_SHARE = 0.5, 0.5
ACCELERATOR_SHARE, PRIMARY_SHARE = 0.8, 0.2

_ON_GPU = {
    PriorityClass.REALTIME: 1.0,
    PriorityClass.BATCH: 1.0,
    PriorityClass.BACKGROUND: 0.5,
}
_ON_CPU = {
    PriorityClass.REALTIME: 0.0,
    PriorityClass.BATCH: 0.5,
    PriorityClass.BACKGROUND: 1.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One node that knows the model of a request.

    Attributes
    ----------
    accelerator : str
        What it runs on; empty: not told, which counts as a GPU.
    is_home : bool
        Loads of the model are ordered here.
    is_resident : bool
        The model is loaded here, and nothing is about to unload it.
    closed : bool
        Its circuits let a request through.
    in_flight : int
        Requests of this model that this gateway has here.
    slots : int or None
        How many of them may run at once; None: not known.
    node_in_flight : int
        Requests of all models here, from all gateways as far as is known.
    was_last : bool
        The client's last request for this model went here: its prompt cache may be warm.
    """

    node: NodeId
    accelerator: str = ""
    is_home: bool = False
    is_primary: bool = False
    is_resident: bool = False
    is_alive: bool = True
    closed: bool = True
    in_flight: int = 0
    slots: int | None = None
    node_in_flight: int = 0
    was_last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Each part is 0 to 1, and so is the whole; more is better."""

    load: float
    affinity: float
    priority: float

    @property
    def total(self) -> float:
        """0.6 (1 - load) + 0.3 affinity + 0.1 priority."""
        return (
            LOAD_SHARE * (1.0 - self.load)
            + AFFINITY_SHARE * self.affinity
            + PRIORITY_SHARE * self.priority
        )


Turns = Mapping[NodeId, float]
"""Of one model, for ``weighted-round-robin``: how far each node is behind its share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The node, and the turns to pass in next time (None: they are as they were)."""

    node: NodeId
    turns: Turns | None = None


def choose(
    places: Sequence[Place],
    priority: PriorityClass,
    *,
    strategy: str = RESOURCE_AWARE,
    weights: Mapping[str, float] | None = None,
    turns: Turns | None = None,
) -> Choice | None:
    """The node for one request; None where no circuit lets it through."""
    by_weight = strategy == WEIGHTED_ROUND_ROBIN
    eligible = filtered(places, priority, with_cpus=by_weight)
    if not eligible:
        return None
    if by_weight:
        return _in_turn(eligible, weights or {}, turns or {})
    best = min(
        eligible,
        key=lambda place: (
            -score(place, priority).total,
            place.node_in_flight,
            not place.is_home,
            place.node,
        ),
    )
    return Choice(node=best.node)


def filtered(
    places: Sequence[Place], priority: PriorityClass, *, with_cpus: bool = False
) -> list[Place]:
    """Those that the request may go to; empty where no circuit lets it through."""
    kept = [place for place in places if place.closed]
    kept = _those(kept, lambda place: place.is_alive)
    resident = [place for place in kept if place.is_resident]
    kept = resident or _those(kept, lambda place: place.is_home)
    kept = _those(kept, has_slot)
    if with_cpus or priority is PriorityClass.BACKGROUND:
        return kept
    return _those(kept, lambda place: place.accelerator != CPU)


def is_makeshift(places: Sequence[Place], chosen: NodeId) -> bool:
    """Whether a CPU was chosen since the model is not resident at its home, which has a GPU."""
    home = next((place for place in places if place.is_home), None)
    if home is None or home.node == chosen or home.is_resident or not home.is_alive:
        return False
    here = next(place for place in places if place.node == chosen)
    return here.accelerator == CPU and home.accelerator != CPU


def has_slot(place: Place) -> bool:
    """Whether one more request of the model may run there."""
    return place.slots is None or place.in_flight < place.slots


def score(place: Place, priority: PriorityClass) -> Score:
    """How good a place is for a request of this class.

    ``load``: the share of the model's slots in use; where slots are not known n / (n + 4) of
    the n requests that the node has. ``affinity``: half for being resident, half for having
    served the client's last request for the model. ``priority``: 0.8 of what the class
    prefers (a GPU 1, 1 and 0.5, a CPU 0, 0.5 and 1 for realtime, batch and background), and
    0.2 for the primary.

    >>> busy = Place(node=NodeId("a"), accelerator="cuda", is_resident=True, was_last=True,
    ...              slots=4, in_flight=3, is_primary=True)
    >>> idle = Place(node=NodeId("b"), accelerator="rocm", is_resident=True, slots=4)
    >>> round(score(busy, PriorityClass.REALTIME).total, 3)
    0.55
    >>> round(score(idle, PriorityClass.REALTIME).total, 3)
    0.83
    """
    if place.slots is not None:
        load = min(1.0, place.in_flight / max(1, place.slots))
    else:
        load = place.node_in_flight / (place.node_in_flight + HALF_LOADED_AT)
    affinity = RESIDENT_SHARE * place.is_resident + CLIENT_SHARE * place.was_last
    preferred = (_ON_CPU if place.accelerator == CPU else _ON_GPU)[priority]
    return Score(
        load=load,
        affinity=affinity,
        priority=ACCELERATOR_SHARE * preferred + PRIMARY_SHARE * place.is_primary,
    )


def _those(places: list[Place], matches: Callable[[Place], bool]) -> list[Place]:
    """Those that match, or all where none does."""
    return [place for place in places if matches(place)] or places


def _in_turn(places: Sequence[Place], weights: Mapping[str, float], turns: Turns) -> Choice:
    """Smooth weighted round robin: shares come out exactly, and spread out evenly.

    Nodes of one accelerator have its weight each. An accelerator without a weight counts 0,
    and nodes of weight 0 are only used, and then alike, where there are no others.
    """
    shares = {place.node: max(0.0, weights.get(place.accelerator, 0.0)) for place in places}
    if not any(shares.values()):
        shares = dict.fromkeys(shares, 1.0)
    after = {node: turns.get(node, 0.0) + share for node, share in sorted(shares.items()) if share}
    chosen = max(after, key=lambda node: after[node])
    after[chosen] -= sum(shares.values())
    return Choice(node=chosen, turns=after)
