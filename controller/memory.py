"""How much our orders may fill: pure arithmetic over one node.

A budget is a vector with one entry per card and one for host RAM; a model fits if every place
that it takes has room. Where cards or the split of a model are not told, the node's one number
holds alone. That number bounds all cards together in any case, since ``gpu_budget_mb`` caps it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from contracts.config import PlannerConfig
from contracts.ids import NodeId
from contracts.memory import FootprintSource, PlaceId, PlaceKind, PlaceStatus, Split
from contracts.world import (
    OCCUPIES_MEMORY,
    ModelStatus,
    NodeStatus,
    Residency,
    WorldSnapshot,
)
from controller.groups import limit_bytes, occupied_bytes, place_of
from controller.places import split_on, takes_main_memory

_GOING = frozenset({Residency.DRAINING, Residency.UNLOADING})

ALL_CARDS = PlaceId("")
"""Stands for the node's one number where several bounds are looked at together."""

_NOTHING: Split = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRoom:
    """One place: what our models may take and take. None: nobody knows, so it bounds nothing."""

    place: PlaceId
    usable_bytes: int | None
    occupied_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What one node holds and may hold.

    Attributes
    ----------
    usable_bytes : int or None
        The most that our models may take together; None: nobody knows, so bytes bound nothing.
    occupied_bytes : int
        What they take now, loading and draining ones included.
    residents, model_limit :
        The same as a count, against LocalAI's own limit where one is set.
    loading : int
        Loads that run or wait for their victims.
    draining : int
        Models that are about to go: they still count as occupied.
    places : tuple of PlaceRoom
        The same of each card and of host RAM; empty: the one number is all that is told.
    node : NodeStatus or None
        Whose room it is, where places are told.
    shares : tuple of PlaceRoom
        What each group of work may take and takes, where that is bounded.
    alone : mapping
        How many residents there are of each set of models that exclude each other.
    """

    usable_bytes: int | None
    occupied_bytes: int
    residents: int
    model_limit: int | None
    loading: int
    draining: int = 0
    places: tuple[PlaceRoom, ...] = ()
    node: NodeStatus | None = None
    shares: tuple[PlaceRoom, ...] = ()
    alone: Mapping[PlaceId, int] = field(default_factory=dict)

    def missing_bytes(self, wanted_bytes: int) -> int:
        """How much must be freed before ``wanted_bytes`` fit; 0 when they fit."""
        if self.usable_bytes is None:
            return 0
        return max(0, self.occupied_bytes + wanted_bytes - self.usable_bytes)

    def missing_slots(self) -> int:
        """How many models must go before one more may be resident."""
        return 0 if self.model_limit is None else max(0, self.residents + 1 - self.model_limit)

    def main_need(self, status: ModelStatus) -> int:
        """What a load of it takes of the node's one number."""
        if status.on_host and self.node is not None and not takes_main_memory(status, self.node):
            return 0
        return status.needed_bytes

    def split(self, status: ModelStatus) -> Split:
        """Its bytes by place; empty where that is not told."""
        return _NOTHING if self.node is None else split_on(status, self.node.places)

    def need(self, status: ModelStatus) -> Split:
        """What a load of it takes of each place; scaled up where one failed for memory."""
        split = self.split(status)
        footprint_bytes, needed_bytes = status.footprint_bytes, status.needed_bytes
        if not split or not footprint_bytes or needed_bytes == footprint_bytes:
            return split
        return {name: size * needed_bytes // footprint_bytes for name, size in split.items()}

    def shortage(self, status: ModelStatus) -> dict[PlaceId, int]:
        """How much must be freed, and where, before it fits; the one number as ``ALL_CARDS``."""
        short: dict[PlaceId, int] = {}
        missing = self.missing_bytes(self.main_need(status))
        if missing:
            short[ALL_CARDS] = missing
        if self.places:
            self._add_short_places(short, self.need(status))
        share = self._share_of(status)
        if share is not None:
            assert share.usable_bytes is not None
            missing = share.occupied_bytes + status.needed_bytes - share.usable_bytes
            if missing > 0:
                short[share.place] = missing
        if self.alone:
            for name in status.exclusive:
                beside = self.alone.get(_seat(name))
                if beside:
                    short[_seat(name)] = beside
        return short

    def _add_short_places(self, short: dict[PlaceId, int], need: Split) -> None:
        for place in self.places:
            wanted = need.get(place.place)
            if wanted and place.usable_bytes is not None:
                missing = place.occupied_bytes + wanted - place.usable_bytes
                if missing > 0:
                    short[place.place] = missing

    def can_never_hold(self, status: ModelStatus) -> bool:
        """Whether even an empty node is too small for it, as a whole or at one place."""
        if self.usable_bytes is not None and self.main_need(status) > self.usable_bytes:
            return True
        if self.shares and self.is_over_share(status):
            return True
        if not self.places:
            return False
        need = self.need(status)
        return any(
            place.usable_bytes is not None and need.get(place.place, 0) > place.usable_bytes
            for place in self.places
        )

    def is_over_share(self, status: ModelStatus) -> bool:
        """Whether it alone is more than its group may take."""
        share = self._share_of(status)
        limit = None if share is None else share.usable_bytes
        return limit is not None and status.needed_bytes > limit

    def _share_of(self, status: ModelStatus) -> PlaceRoom | None:
        if not self.shares or not status.group:
            return None
        own = place_of(status.group)
        return next((share for share in self.shares if share.place == own), None)

    def slots_short(self, status: ModelStatus) -> int:
        """How many models must go before a load of it has a chance, whatever they take.

        Where no memory is told, one at a time goes for a model whose last load failed for it.
        """
        missing = self.missing_slots()
        if self.usable_bytes is None and status.out_of_memory_bytes is not None:
            return max(missing, min(1, self.residents))
        return missing

    def disturbs(self, status: ModelStatus, loading: Iterable[ModelStatus]) -> bool:
        """Whether a load of it has to wait for those that run.

        Two at once on one card mis-size each other, so that a model which was never measured
        loads alone there.
        """
        if not self.places:
            return False
        own = self.split(status)
        for other in loading:
            if FootprintSource.MEASURED is status.footprint_source is other.footprint_source:
                continue
            theirs = self.split(other)
            if not own or not theirs or own.keys() & theirs.keys():
                return True
        return False

    def freed(self, status: ModelStatus) -> dict[PlaceId, int]:
        """What its unloading gives back, place by place and of the one number."""
        if status.residency not in OCCUPIES_MEMORY:
            return {}
        freed = dict(self.split(status))
        if self.node is None or takes_main_memory(status, self.node):
            freed[ALL_CARDS] = status.occupied_bytes
        if self.shares and status.group:
            freed[place_of(status.group)] = status.occupied_bytes
        for name in status.exclusive:
            freed[_seat(name)] = 1
        return freed


def room(
    world: WorldSnapshot,
    node: NodeId,
    config: PlannerConfig,
    *,
    model_limit: int | None = None,
    models: tuple[ModelStatus, ...] | None = None,
) -> Room:
    """The room of ``node``; ``model_limit`` is a policy's own bound beside LocalAI's.

    ``models`` are those of the node where the caller has them at hand.
    """
    status = world.nodes[node]
    if models is None:
        models = world.on_node(node)
    present = [model for model in models if model.residency in OCCUPIES_MEMORY]
    limits = [limit for limit in (status.model_limit, model_limit) if limit is not None]
    return Room(
        usable_bytes=usable_bytes(status, config),
        occupied_bytes=sum(
            model.occupied_bytes
            for model in present
            if not model.on_host or takes_main_memory(model, status)
        ),
        residents=len(present),
        model_limit=min(limits, default=None),
        loading=sum(model.residency is Residency.LOADING for model in present),
        draining=sum(model.residency in _GOING for model in present),
        places=_place_rooms(status, present, config) if status.places else (),
        node=status if status.places or status.accelerator else None,
        shares=_group_shares(status, present, config) if config.groups else (),
        alone=Counter(_seat(name) for model in present for name in model.exclusive),
    )


def usable_bytes(node: NodeStatus, config: PlannerConfig) -> int | None:
    """(what the probe shows less what others use) x (1 - reserve), at most the configured bound.

    >>> node = NodeStatus(node=NodeId("a"), memory_total_bytes=1000, used_by_others_bytes=200)
    >>> usable_bytes(node, PlannerConfig(reserve_ratio=0.25))
    600
    """
    if node.memory_total_bytes is None:
        return config.budget_bytes
    free = max(0, node.memory_total_bytes - node.used_by_others_bytes)
    usable = int(free * (1.0 - config.reserve_ratio))
    return usable if config.budget_bytes is None else min(usable, config.budget_bytes)


def place_usable_bytes(place: PlaceStatus, config: PlannerConfig) -> int | None:
    """The same of one place; ``host_budget_bytes`` caps host RAM, and all of unified memory.

    >>> card = PlaceStatus(place=PlaceId("GPU-1"), kind=PlaceKind.GPU, total_bytes=1000)
    >>> place_usable_bytes(card, PlannerConfig(reserve_ratio=0.25))
    750
    """
    bound = None if place.kind is PlaceKind.GPU else config.host_budget_bytes
    if place.total_bytes is None:
        return bound
    free = max(0, place.total_bytes - place.used_by_others_bytes)
    usable = int(free * (1.0 - config.reserve_ratio))
    return usable if bound is None else min(usable, bound)


def gpu_bytes(status: ModelStatus, node: NodeStatus) -> int:
    """Bytes of a node's GPUs that the model takes while resident; unknown counts as 0."""
    if not node.places:
        return (status.footprint_bytes or 0) if takes_main_memory(status, node) else 0
    split = split_on(status, node.places)
    cards = {place.place for place in node.places if place.kind is not PlaceKind.HOST}
    if not split:
        return 0 if status.on_host else status.footprint_bytes or 0
    return sum(size for place, size in split.items() if place in cards)


def host_bytes(status: ModelStatus, node: NodeStatus) -> int:
    """Bytes of the host's RAM that it takes while resident; unknown counts as 0."""
    if not node.places:
        return 0 if takes_main_memory(status, node) else status.footprint_bytes or 0
    hosts = {place.place for place in node.places if place.kind is PlaceKind.HOST}
    return sum(size for place, size in split_on(status, node.places).items() if place in hosts)


def _seat(name: str) -> PlaceId:
    """The one place that models which exclude each other share; no card is called so."""
    return PlaceId(f"alone:{name}")


def _group_shares(
    node: NodeStatus, present: list[ModelStatus], config: PlannerConfig
) -> tuple[PlaceRoom, ...]:
    """Of the groups that have a limit."""
    taken, usable = occupied_bytes(present), usable_bytes(node, config)
    limits = {name: limit_bytes(group, node, usable) for name, group in config.groups.items()}
    return tuple(
        PlaceRoom(place=place_of(name), usable_bytes=limit, occupied_bytes=taken.get(name, 0))
        for name, limit in limits.items()
        if limit is not None
    )


def _place_rooms(
    node: NodeStatus, present: list[ModelStatus], config: PlannerConfig
) -> tuple[PlaceRoom, ...]:
    occupied: dict[PlaceId, int] = {}
    for status in present:
        held: Mapping[PlaceId, int] = split_on(status, node.places)
        for name, size in held.items():
            occupied[name] = occupied.get(name, 0) + size
    return tuple(
        PlaceRoom(
            place=place.place,
            usable_bytes=place_usable_bytes(place, config),
            occupied_bytes=occupied.get(place.place, 0),
        )
        for place in node.places
    )
