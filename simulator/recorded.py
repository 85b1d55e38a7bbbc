"""A log that Headstart recorded itself as a workload, and as the row of what really happened.

Sizes and load times are those that were measured; where a model was never seen to load, those
of the last world that the controller left. Pure: events come in, in the order of the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from contracts.errors import Invalid
from contracts.events import (
    AnyEvent,
    LoadCause,
    ModelLoaded,
    ModelLoadStarted,
    ModelUnloaded,
    NodeObserved,
    Origin,
    PriorityClass,
    RequestCancelled,
    RequestCompleted,
    RequestDispatched,
    RequestFailed,
    RequestReceived,
)
from contracts.ids import ModelId, RequestId
from contracts.world import WorldSnapshot
from simulator.report import Row, row
from simulator.telling import RANKS
from simulator.workloads import MIB, Arrival, Workload, WorkloadModel

NAME = "events"
RECORDED = "recorded"
"""The policy's name in the row of what really happened."""

DEFAULT_PARALLEL = 4
DEFAULT_SLO_S = 2.0
_RANK: dict[PriorityClass, int] = {priority: rank for rank, priority in enumerate(RANKS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What a log says.

    Attributes
    ----------
    workload : Workload
        Requests at their epoch seconds, all classes as they were.
    happened : Row
        Cold starts, waits and loads as they were.
    capacity_mb : int or None
        Memory of the largest node that was observed; None: none told.
    guessed : tuple of ModelId
        Models whose size nobody measured: the median of the others is assumed.
    passed_over : int
        Requests without a model, or for one that did not exist.
    """

    workload: Workload
    happened: Row
    capacity_mb: int | None
    guessed: tuple[ModelId, ...]
    passed_over: int


@dataclass(slots=True)
class _Request:
    model: ModelId
    at_s: float
    rank: int
    dispatched_s: float | None = None
    service_s: float | None = None
    wait_s: float | None = None
    cold: bool = False
    unknown: bool = False


@dataclass(slots=True)
class _Notes:
    requests: dict[RequestId, _Request] = field(default_factory=dict)
    nameless: int = 0
    sizes_mb: dict[ModelId, int] = field(default_factory=dict)
    load_s: dict[ModelId, list[float]] = field(default_factory=lambda: defaultdict(list))
    memory_mb: int = 0
    loads: int = 0
    prefetches: int = 0
    wasted: int = 0
    running: dict[ModelId, int] = field(default_factory=lambda: defaultdict(int))
    most_running: dict[ModelId, int] = field(default_factory=lambda: defaultdict(int))
    unused: set[ModelId] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)


def read_recording(events: Iterable[AnyEvent], world: WorldSnapshot | None = None) -> Recording:
    """The workload behind a log.

    Raises
    ------
    Invalid
        It holds no request, or no model's size is known.
    """
    notes = _Notes()
    for event in events:
        if event.event_id not in notes.seen:
            notes.seen.add(event.event_id)
            _note(notes, event)
    kept = [r for r in notes.requests.values() if not r.unknown]
    if not kept:
        raise Invalid("the log holds no request that names a model")
    names = sorted({request.model for request in kept})
    models, guessed = _models(names, notes, world)
    usual_s = _usual_service_s(kept)
    arrivals = tuple(
        sorted(
            Arrival(
                r.at_s,
                r.model,
                usual_s[r.model] if r.service_s is None else max(0.0, r.service_s),
                r.rank,
            )
            for r in kept
        )
    )
    waits = [(r.wait_s, models[r.model].slo_s, r.cold) for r in kept if r.wait_s is not None]
    return Recording(
        workload=Workload(name=NAME, models=models, arrivals=arrivals),
        happened=row(
            RECORDED,
            waits,
            loads=notes.loads,
            prefetches=notes.prefetches,
            wasted_prefetches=notes.wasted,
        ),
        capacity_mb=notes.memory_mb or None,
        guessed=guessed,
        passed_over=notes.nameless + len(notes.requests) - len(kept),
    )


def _note(notes: _Notes, event: AnyEvent) -> None:
    match event:
        case RequestReceived():
            _note_arrival(notes, event)
        case RequestDispatched():
            _note_dispatch(notes, event)
        case RequestCompleted() | RequestFailed() | RequestCancelled():
            _note_end(notes, event)
        case ModelLoadStarted():
            notes.loads += 1
            if event.cause is LoadCause.PREFETCH:
                notes.prefetches += 1
                notes.unused.add(event.model)
        case ModelLoaded():
            _note_load(notes, event)
        case ModelUnloaded():
            notes.wasted += event.model in notes.unused
            notes.unused.discard(event.model)
        case NodeObserved():
            notes.memory_mb = max(notes.memory_mb, (event.memory_total_bytes or 0) // MIB)
        case _:
            pass


def _note_load(notes: _Notes, event: ModelLoaded) -> None:
    if event.footprint_bytes:
        notes.sizes_mb[event.model] = max(1, round(event.footprint_bytes / MIB))
    if event.load_s is not None:
        notes.load_s[event.model].append(event.load_s)


def _note_arrival(notes: _Notes, event: RequestReceived) -> None:
    if event.model is None:
        notes.nameless += 1
        return
    notes.unused.discard(event.model)
    notes.requests.setdefault(
        event.request_id,
        _Request(model=event.model, at_s=event.at_s, rank=_RANK[event.priority]),
    )


def _note_dispatch(notes: _Notes, event: RequestDispatched) -> None:
    request = notes.requests.get(event.request_id)
    if request is None or request.dispatched_s is not None:
        return
    request.dispatched_s, request.wait_s = event.at_s, event.queue_wait_s
    request.cold = event.cold
    notes.running[request.model] += 1
    most = max(notes.most_running[request.model], notes.running[request.model])
    notes.most_running[request.model] = most


def _note_end(notes: _Notes, event: RequestCompleted | RequestFailed | RequestCancelled) -> None:
    request = notes.requests.get(event.request_id)
    if request is None:
        return
    if request.dispatched_s is not None:
        notes.running[request.model] -= 1
    if isinstance(event, RequestCompleted):
        request.service_s = event.service_s
        request.unknown = event.status == 404
    elif isinstance(event, RequestFailed) and event.origin is not Origin.UPSTREAM:
        # Refused by us or wrong from the start: it never was work for a model.
        request.unknown = request.dispatched_s is None
    elif request.dispatched_s is not None:
        request.service_s = event.at_s - request.dispatched_s


def _usual_service_s(requests: list[_Request]) -> dict[ModelId, float]:
    """The median of each model; of all, where one has none; 1 s where nobody has."""
    per_model: dict[ModelId, list[float]] = defaultdict(list)
    for request in requests:
        if request.service_s is not None:
            per_model[request.model].append(request.service_s)
    overall = [value for values in per_model.values() for value in values]
    usual_s = median(overall) if overall else 1.0
    return {
        request.model: median(per_model[request.model]) if per_model.get(request.model) else usual_s
        for request in requests
    }


def _models(
    names: list[ModelId], notes: _Notes, world: WorldSnapshot | None
) -> tuple[dict[ModelId, WorkloadModel], tuple[ModelId, ...]]:
    known = {} if world is None else world.models
    sizes_mb = dict(notes.sizes_mb)
    for name in names:
        status = known.get(name)
        if name not in sizes_mb and status is not None and status.footprint_bytes:
            sizes_mb[name] = max(1, round(status.footprint_bytes / MIB))
    if not sizes_mb:
        raise Invalid("the log tells no model's size: nothing was seen to load")
    usual_mb = round(median(sizes_mb.values()))
    models = {}
    for name in names:
        size_mb = sizes_mb.get(name, usual_mb)
        measured_s = notes.load_s.get(name)
        status = known.get(name)
        load_s = median(measured_s) if measured_s else None if status is None else status.load_s
        sla = None if world is None else world.slas.get(name)
        models[name] = WorkloadModel(
            model=name,
            size_mb=size_mb,
            load_s=1 + size_mb / 600 if load_s is None else load_s,
            parallel=max(DEFAULT_PARALLEL, notes.most_running[name]),
            slo_s=DEFAULT_SLO_S if sla is None else sla.target_s,
        )
    return models, tuple(name for name in names if name not in sizes_mb)
