"""Small worlds and the events that change them, for tests of what decides.

Sizes are in units of a MiB; ``seconds`` are seconds of the world.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import TypedDict

from contracts.config import PlannerConfig
from contracts.events import (
    ActionFailed,
    LoadCause,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadStarted,
    ModelUnloaded,
    NodeObserved,
    Origin,
    PriorityClass,
    RequestCancelled,
    RequestCompleted,
    RequestDispatched,
    RequestFailed,
    RequestPhase,
    RequestReceived,
    UnloadCause,
)
from contracts.forecasts import NEXT_USE_GRID_S, ForecastStatus, ModelForecast, NextUse
from contracts.ids import ModelId, NodeId, RequestId
from contracts.world import (
    Mode,
    ModelStatus,
    NodeStatus,
    OpenRequest,
    Residency,
    WorldSnapshot,
)

MIB = 1024**2
NODE = NodeId("gpu")
A, B, C, D = (ModelId(name) for name in "abcd")
GATEWAY = "gw"

_numbers = itertools.count(1)


class Stamp(TypedDict):
    event_id: str
    at_s: float
    source: str


def stamp(at_s: float, source: str = GATEWAY) -> Stamp:
    return Stamp(event_id=f"e{next(_numbers)}", at_s=at_s, source=source)


def model(
    name: ModelId,
    residency: Residency = Residency.COLD,
    *,
    mb: int | None = 10,
    since_s: float = 0.0,
    used_s: float | None = None,
    load_s: float | None = 8.0,
    node: NodeId = NODE,
    **fields: object,
) -> ModelStatus:
    status = ModelStatus(
        model=name,
        node=node,
        residency=residency,
        residency_since_s=since_s,
        last_used_at_s=used_s,
        footprint_bytes=None if mb is None else mb * MIB,
        load_s=load_s,
    )
    return replace(status, **fields)  # type: ignore[arg-type]  # fields are the test's own


def world(
    *models: ModelStatus,
    mb: int | None = 30,
    now_s: float = 100.0,
    mode: Mode = Mode.ACTIVE,
    alive: bool = True,
    model_limit: int | None = None,
    **fields: object,
) -> WorldSnapshot:
    """A node of ``mb`` with these models. Requests behind their counts are made up."""
    requests = {
        RequestId(f"{status.model}-{kind}-{number}"): OpenRequest(
            model=status.model,
            source=GATEWAY,
            received_at_s=status.wanted_since_s or now_s,
            dispatched_at_s=now_s if kind == "flying" else None,
        )
        for status in models
        for kind, count in (("waiting", status.waiting), ("flying", status.in_flight))
        for number in range(count)
    }
    nodes = {status.node for status in models} | {NODE}
    snapshot = WorldSnapshot(
        taken_at_s=now_s,
        mode=mode,
        nodes={
            name: NodeStatus(
                node=name,
                alive=alive,
                memory_total_bytes=None if mb is None else mb * MIB,
                model_limit=model_limit,
            )
            for name in nodes
        },
        models={status.model: status for status in models},
        requests=requests,
    )
    return replace(snapshot, **fields)  # type: ignore[arg-type]  # fields are the test's own


def config(policy: str = "lru", **fields: object) -> PlannerConfig:
    """No reserve, so that sums can be done in the head."""
    return replace(PlannerConfig(policy=policy, reserve_ratio=0.0), **fields)  # type: ignore[arg-type]  # as above


def curve(
    name: ModelId,
    within_s: Mapping[float, float],
    *,
    made_s: float = 100.0,
    expires_s: float = 160.0,
    status: ForecastStatus = ForecastStatus.READY,
) -> ModelForecast:
    """Cumulative hazard that steps up at these delays of the grid (``{20: 0.7}``: due in 20 s)."""
    steps = sorted(within_s.items())
    hazard = [
        max((value for at_s, value in steps if at_s <= delay_s), default=0.0)
        for delay_s in NEXT_USE_GRID_S
    ]
    return ModelForecast(
        model=name,
        next_use=NextUse(
            model=name,
            made_at_s=made_s,
            expires_at_s=expires_s,
            last_arrival_at_s=None,
            cumulative_hazard=tuple(hazard),
            method="test",
            status=status,
            brier=None,
            floor_brier=None,
        ),
        signals=(),
    )


def received(
    request: str, name: ModelId | None, at_s: float, source: str = GATEWAY
) -> RequestReceived:
    return RequestReceived(
        **stamp(at_s, source),
        request_id=RequestId(request),
        model=name,
        operation="chat",
        priority=PriorityClass.REALTIME,
        client="c",
        stream=False,
    )


def dispatched(
    request: str, name: ModelId | None, at_s: float, *, cold: bool = False, queue_wait_s: float = 0
) -> RequestDispatched:
    return RequestDispatched(
        **stamp(at_s),
        request_id=RequestId(request),
        model=name,
        node=NODE,
        queue_wait_s=queue_wait_s,
        cold=cold,
    )


def completed(request: str, name: ModelId | None, at_s: float) -> RequestCompleted:
    return RequestCompleted(
        **stamp(at_s),
        request_id=RequestId(request),
        model=name,
        status=200,
        duration_s=1.0,
        service_s=1.0,
        input_tokens=None,
        output_tokens=None,
    )


def failed(request: str, name: ModelId | None, at_s: float) -> RequestFailed:
    return RequestFailed(
        **stamp(at_s),
        request_id=RequestId(request),
        model=name,
        status=503,
        error="model_loading",
        origin=Origin.GATEWAY,
        duration_s=1.0,
    )


def cancelled(request: str, name: ModelId | None, at_s: float) -> RequestCancelled:
    return RequestCancelled(
        **stamp(at_s),
        request_id=RequestId(request),
        model=name,
        phase=RequestPhase.QUEUED,
        duration_s=1.0,
    )


def load_started(
    name: ModelId, at_s: float, cause: LoadCause = LoadCause.DEMAND, source: str = "ctl"
) -> ModelLoadStarted:
    return ModelLoadStarted(**stamp(at_s, source), model=name, node=NODE, cause=cause)


def loaded(
    name: ModelId,
    at_s: float,
    *,
    load_s: float | None = None,
    mb: int | None = None,
    cause: LoadCause = LoadCause.DEMAND,
    source: str = "ctl",
) -> ModelLoaded:
    return ModelLoaded(
        **stamp(at_s, source),
        model=name,
        node=NODE,
        cause=cause,
        load_s=load_s,
        footprint_bytes=None if mb is None else mb * MIB,
    )


def load_failed(
    name: ModelId, at_s: float, *, retry_after_s: float | None = None
) -> ModelLoadFailed:
    return ModelLoadFailed(
        **stamp(at_s, "ctl"),
        model=name,
        node=NODE,
        cause=LoadCause.DEMAND,
        error="no",
        retry_after_s=retry_after_s,
    )


def unloaded(name: ModelId, at_s: float, source: str = "ctl") -> ModelUnloaded:
    return ModelUnloaded(**stamp(at_s, source), model=name, node=NODE, cause=UnloadCause.EVICTED)


def observed(
    at_s: float,
    *resident: ModelId,
    total_mb: int | None = 30,
    used_mb: int | None = None,
    model_limit: int | None = None,
) -> NodeObserved:
    return NodeObserved(
        **stamp(at_s, "ctl"),
        node=NODE,
        resident=resident,
        busy=(),
        memory_total_bytes=None if total_mb is None else total_mb * MIB,
        memory_used_bytes=None if used_mb is None else used_mb * MIB,
        model_limit=model_limit,
    )


def given_up(kind: str, name: ModelId, at_s: float) -> ActionFailed:
    return ActionFailed(
        **stamp(at_s, "ctl"), action_id="a1", kind=kind, subject=name, error="in use"
    )
