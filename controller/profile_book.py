"""Learns what models take and how fast they are, from loads, probes and requests. Pure.

It is handed what happened with its time, keeps little of it, and is asked for estimates. What
it holds is bounded: models by ``MAX_PROFILES`` (the one measured longest ago goes, counted), open
requests by ``MAX_OPEN`` (the oldest is forgotten).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from contracts.events import (
    AnyEvent,
    FirstTokenSent,
    RequestCancelled,
    RequestCompleted,
    RequestDispatched,
    RequestFailed,
)
from contracts.ids import ModelId, NodeId, RequestId
from contracts.memory import Split
from contracts.profiles import (
    FIRST_TOKEN,
    FIRST_TOKEN_COLD,
    LOAD_COLD,
    LOAD_WARM,
    MAX_PROFILES,
    TOKEN_AT,
    WINDOW,
    MeasuredProfile,
    Measures,
    Series,
    batch_of,
)
from contracts.world import Residency, WorldSnapshot

MAX_OPEN = 10_000

FEWEST_TOKENS = 8
"""Of a shorter answer the time for a token says more about the network than about the model."""

WARM_WITHIN_S = 600.0
"""Weights of a model that left so recently are taken to be in the page cache still, where
nobody can see it: hosts that run models have RAM for a few of them, and no more."""

WARM_RATIO, COLD_RATIO = 0.8, 0.2
"""Share of the files in the page cache above which a load is warm, and under which it is cold."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A request that was sent and has not ended."""

    model: ModelId
    node: NodeId
    sent_at_s: float
    is_first: bool
    beside: int
    first_token_s: float | None = None


class ProfileBook:
    """What was measured so far.

    Parameters
    ----------
    profiles : mapping
        What earlier processes measured.
    """

    def __init__(self, profiles: Mapping[ModelId, MeasuredProfile] | None = None) -> None:
        self._profiles = dict(profiles or {})
        self._revisions: dict[ModelId, str] = {}
        self._open: dict[RequestId, _Open] = {}
        self._fresh: set[ModelId] = set()
        self._changed: set[ModelId] = set()
        self.dropped = 0

    def restore(self, profiles: Mapping[ModelId, MeasuredProfile]) -> None:
        """Begin with what is stored; what was measured meanwhile stands."""
        self._profiles = {**profiles, **self._profiles}

    def configured(self, revisions: Mapping[ModelId, str]) -> None:
        """The configurations that models have now."""
        self._revisions.update(revisions)

    def profile(self, model: ModelId) -> MeasuredProfile | None:
        """All that is known of a model; None: nothing."""
        return self._profiles.get(model)

    def measures(self, model: ModelId, node: NodeId) -> Measures | None:
        """What is known of its present configuration on ``node``."""
        profile = self._profiles.get(model)
        return None if profile is None else profile.on(node, self._revisions.get(model, ""))

    @property
    def models(self) -> tuple[ModelId, ...]:
        """Every model that something was measured of."""
        return tuple(self._profiles)

    def changed_still(self, models: Iterable[ModelId]) -> None:
        """What was taken for the store did not get there."""
        self._changed.update(models)

    def forget(self, model: ModelId) -> None:
        """Begin anew with this model."""
        self._profiles.pop(model, None)
        self._changed.discard(model)

    def take_changed(self) -> tuple[MeasuredProfile, ...]:
        """What is new since the last call, for the store."""
        changed, self._changed = self._changed, set()
        return tuple(self._profiles[name] for name in sorted(changed) if name in self._profiles)

    def split(self, model: ModelId, node: NodeId) -> Split:
        """The measured footprint by place; empty: not measured."""
        measures = self.measures(model, node)
        if measures is None:
            return {}
        return {place: round(one.value) for place, one in measures.footprint().items()}

    # What happened

    def footprint(self, model: ModelId, node: NodeId, split: Split, at_s: float) -> None:
        """A load took so much of each place."""
        own = self._own(model, node)
        self._put(
            model,
            replace(
                own,
                footprints=(*own.footprints, dict(split))[-WINDOW:],
                footprint_count=own.footprint_count + 1,
                footprint_at_s=at_s,
                at_s=at_s,
            ),
        )

    def rejected(self, model: ModelId, node: NodeId, at_s: float) -> None:
        """A load could not be measured: others moved at the same time."""
        own = self._own(model, node)
        self._put(model, replace(own, rejected=own.rejected + 1, at_s=at_s))

    def loaded(
        self, model: ModelId, node: NodeId, load_s: float, at_s: float, *, warm: bool | None
    ) -> None:
        """A load took so long; ``warm`` is None where it was neither."""
        self._fresh.add(model)
        if warm is not None:
            self._add(model, node, LOAD_WARM if warm else LOAD_COLD, load_s, at_s)

    def heard(self, event: AnyEvent, world: WorldSnapshot) -> None:
        """A request went on."""
        match event:
            case RequestDispatched():
                self._dispatched(event, world)
            case FirstTokenSent():
                self._first_token(event)
            case RequestCompleted():
                self._completed(event, world)
            case RequestFailed() | RequestCancelled():
                self._open.pop(event.request_id, None)
            case _:
                pass

    def _dispatched(self, event: RequestDispatched, world: WorldSnapshot) -> None:
        model = event.served_by or event.model
        if model is None:
            return
        status = world.models.get(model)
        self._open[event.request_id] = _Open(
            model=model,
            node=event.node,
            sent_at_s=event.at_s,
            is_first=model in self._fresh,
            beside=1 if status is None else max(1, status.in_flight),
        )
        self._fresh.discard(model)
        if len(self._open) > MAX_OPEN:
            del self._open[next(iter(self._open))]

    def _first_token(self, event: FirstTokenSent) -> None:
        own = self._open.get(event.request_id)
        if own is None:
            return
        took_s = event.at_s - own.sent_at_s
        self._open[event.request_id] = replace(own, first_token_s=took_s)
        name = FIRST_TOKEN_COLD if own.is_first else FIRST_TOKEN
        self._add(own.model, own.node, name, took_s, event.at_s)

    def _completed(self, event: RequestCompleted, world: WorldSnapshot) -> None:
        own = self._open.pop(event.request_id, None)
        tokens = event.output_tokens
        if own is None or own.first_token_s is None or tokens is None or tokens < FEWEST_TOKENS:
            return
        status = world.models.get(own.model)
        beside = max(own.beside, 1 if status is None else status.in_flight)
        token_s = (event.service_s - own.first_token_s) / (tokens - 1)
        self._add(own.model, own.node, f"{TOKEN_AT}{batch_of(beside)}", token_s, event.at_s)

    def _add(self, model: ModelId, node: NodeId, name: str, value: float, at_s: float) -> None:
        own = self._own(model, node)
        series = own.series.get(name, Series()).plus(value, at_s)
        self._put(model, replace(own, series={**own.series, name: series}, at_s=at_s))

    def _own(self, model: ModelId, node: NodeId) -> Measures:
        known = self.measures(model, node)
        return known or Measures(node=node, revision=self._revisions.get(model, ""))

    def _put(self, model: ModelId, measures: Measures) -> None:
        profile = self._profiles.get(model) or MeasuredProfile(model=model)
        self._profiles[model] = profile.with_measures(measures)
        self._changed.add(model)
        if len(self._profiles) > MAX_PROFILES:
            oldest = min(self._profiles.values(), key=lambda one: (one.at_s, one.model))
            del self._profiles[oldest.model]
            self._changed.discard(oldest.model)
            self.dropped += 1


def is_warm(world: WorldSnapshot, model: ModelId, now_s: float) -> bool | None:
    """Whether a load that begins now finds its weights in the page cache; None: in part.

    As it is seen, where the folder can be looked into; else by how long ago it was resident.
    """
    warmth = world.warmth.get(model)
    ratio = None if warmth is None else warmth.cached_ratio
    if ratio is not None:
        return True if ratio >= WARM_RATIO else False if ratio <= COLD_RATIO else None
    status = world.models.get(model)
    if status is None or status.residency not in (Residency.COLD, Residency.FAILED):
        return None
    was_used = status.last_used_at_s is not None
    return was_used and now_s - status.residency_since_s <= WARM_WITHIN_S
