"""Events and readings that key figures are folded from, each with a stamp of its own."""

from __future__ import annotations

import itertools
from typing import Any

from contracts.events import (
    ActionApplied,
    FeedbackGiven,
    FirstTokenSent,
    LoadCause,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadStarted,
    ModelUnloaded,
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
from contracts.ids import ModelId, NodeId, RequestId
from contracts.readings import GpuReading, ProbeReading

A, B = ModelId("a"), ModelId("b")
NODE = NodeId("n")
HIGH, MIDDLE, LOW = PriorityClass
GB = 1000**3
_numbers = itertools.count()


def told(at_s: float) -> dict[str, Any]:
    return {"event_id": str(next(_numbers)), "at_s": at_s, "source": "gw"}


def received(
    name: str, at_s: float, model: ModelId | None = A, priority=HIGH, *, stream=True
) -> RequestReceived:
    return RequestReceived(
        **told(at_s), request_id=RequestId(name), model=model, operation="chat",
        priority=priority, client="c", stream=stream,
    )  # fmt: skip


def sent(name: str, at_s: float, model=A, *, wait_s=0.0, cold=False, node=NODE):
    return RequestDispatched(
        **told(at_s), request_id=RequestId(name), model=model, node=node,
        queue_wait_s=wait_s, cold=cold,
    )  # fmt: skip


def first(name: str, at_s: float, ttft_s: float, model=A) -> FirstTokenSent:
    return FirstTokenSent(**told(at_s), request_id=RequestId(name), model=model, ttft_s=ttft_s)


def done(name: str, at_s: float, duration_s: float, model=A, *, status=200, tokens=10):
    return RequestCompleted(
        **told(at_s), request_id=RequestId(name), model=model, status=status,
        duration_s=duration_s, service_s=duration_s, input_tokens=tokens, output_tokens=tokens,
    )  # fmt: skip


def failed(name: str, at_s: float, origin=Origin.UPSTREAM, *, status=500, duration_s=1.0):
    return RequestFailed(
        **told(at_s), request_id=RequestId(name), model=A, status=status, error="broke",
        origin=origin, duration_s=duration_s,
    )  # fmt: skip


def left(name: str, at_s: float) -> RequestCancelled:
    return RequestCancelled(
        **told(at_s), request_id=RequestId(name), model=A, phase=RequestPhase.QUEUED, duration_s=1.0
    )


def load_begins(at_s: float, model=A) -> ModelLoadStarted:
    return ModelLoadStarted(**told(at_s), model=model, node=NODE, cause=LoadCause.DEMAND)


def loaded(at_s: float, model=A, *, cause=LoadCause.DEMAND, load_s=4.0, size=GB) -> ModelLoaded:
    return ModelLoaded(
        **told(at_s), model=model, node=NODE, cause=cause, load_s=load_s, footprint_bytes=size
    )


def load_failed(at_s: float, model=A) -> ModelLoadFailed:
    return ModelLoadFailed(
        **told(at_s), model=model, node=NODE, cause=LoadCause.DEMAND, error="x", retry_after_s=None
    )


def unloaded(at_s: float, model=A, cause=UnloadCause.EVICTED) -> ModelUnloaded:
    return ModelUnloaded(**told(at_s), model=model, node=NODE, cause=cause)


def feedback(name: str, score: float, at_s: float = 50.0) -> FeedbackGiven:
    return FeedbackGiven(**told(at_s), request_id=RequestId(name), model=A, score=score)


UNRELATED = ActionApplied(**told(0.0), action_id="x", kind="load", subject="a", took_s=1.0)


def reading(at_s: float, *, power_w: float | None = None, used: int | None = 45) -> ProbeReading:
    gpus = (
        GpuReading(uuid="g", power_watts=power_w),
        GpuReading(uuid="part", power_watts=power_w, parent_uuid="g"),
    )
    return ProbeReading(
        at_s=at_s, gpu_utilization_ratio=0.5, gpu_memory_used_bytes=used,
        gpu_memory_total_bytes=50, load_average_15min=2.0, gpus=gpus,
    )  # fmt: skip
