"""A recorded log becomes a workload: what was asked for, what models cost, what happened."""

from __future__ import annotations

import pytest

from contracts.errors import Invalid
from contracts.events import (
    LoadCause,
    ModelLoaded,
    ModelLoadStarted,
    ModelUnloaded,
    NodeLost,
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
from contracts.ids import ModelId, NodeId, RequestId
from contracts.world import ModelStatus, Sla, WorldSnapshot
from simulator.recorded import read_recording
from simulator.workloads import MIB, Arrival, WorkloadModel

A, B = ModelId("a"), ModelId("b")
NODE = NodeId("n")


class Log:
    """Events as a gateway and a controller would have written them."""

    def __init__(self):
        self.events = []

    def add(self, kind, at_s, **fields):
        number = len(self.events)
        self.events.append(kind(event_id=f"e{number}", at_s=at_s, source="g", **fields))

    def received(self, at_s, name, model, priority=PriorityClass.REALTIME):
        self.add(
            RequestReceived,
            at_s,
            request_id=RequestId(name),
            model=model,
            operation="chat",
            priority=priority,
            client="",
            stream=False,
        )

    def dispatched(self, at_s, name, model, *, wait_s, cold):
        self.add(
            RequestDispatched,
            at_s,
            request_id=RequestId(name),
            model=model,
            node=NODE,
            queue_wait_s=wait_s,
            cold=cold,
        )

    def completed(self, at_s, name, model, *, service_s, status=200):
        self.add(
            RequestCompleted,
            at_s,
            request_id=RequestId(name),
            model=model,
            status=status,
            duration_s=service_s,
            service_s=service_s,
            input_tokens=None,
            output_tokens=None,
        )

    def failed(self, at_s, name, model, origin):
        self.add(
            RequestFailed,
            at_s,
            request_id=RequestId(name),
            model=model,
            status=502,
            error="broken",
            origin=origin,
            duration_s=1.0,
        )

    def loaded(self, at_s, model, *, mb, load_s, cause=LoadCause.DEMAND):
        self.add(ModelLoadStarted, at_s - (load_s or 0.0), model=model, node=NODE, cause=cause)
        self.add(
            ModelLoaded,
            at_s,
            model=model,
            node=NODE,
            cause=cause,
            load_s=load_s,
            footprint_bytes=None if mb is None else mb * MIB,
        )

    def unloaded(self, at_s, model):
        self.add(ModelUnloaded, at_s, model=model, node=NODE, cause=UnloadCause.EVICTED)

    def observed(self, at_s, *, mb):
        self.add(
            NodeObserved,
            at_s,
            node=NODE,
            resident=(),
            busy=(),
            memory_total_bytes=None if mb is None else mb * MIB,
            memory_used_bytes=None,
            model_limit=None,
        )


def morning():
    """One cold request, one warm one, of two classes."""
    log = Log()
    log.observed(99.0, mb=None)
    log.observed(100.0, mb=24_000)
    log.received(100.0, "r1", A)
    log.loaded(108.0, A, mb=4_000, load_s=8.0)
    log.dispatched(108.0, "r1", A, wait_s=8.0, cold=True)
    log.completed(110.0, "r1", A, service_s=2.0)
    log.received(120.0, "r2", A, PriorityClass.BATCH)
    log.dispatched(120.0, "r2", A, wait_s=0.0, cold=False)
    log.completed(123.0, "r2", A, service_s=3.0)
    return log


def test_requests_come_when_they_came_and_serve_as_long_as_they_did():
    found = read_recording(morning().events)
    assert found.workload.arrivals == (Arrival(100.0, A, 2.0, 0), Arrival(120.0, A, 3.0, 1))
    assert found.workload.name == "events"
    assert found.capacity_mb == 24_000
    assert found.guessed == ()
    assert found.passed_over == 0


def test_a_model_costs_what_was_measured():
    log = morning()
    log.loaded(200.0, A, mb=4_000, load_s=10.0)
    log.loaded(300.0, A, mb=4_000, load_s=30.0)
    assert read_recording(log.events).workload.models == {
        A: WorkloadModel(model=A, size_mb=4_000, load_s=10.0, parallel=4, slo_s=2.0)
    }


def test_what_happened_is_a_row_of_its_own():
    log = morning()
    log.loaded(130.0, B, mb=2_000, load_s=5.0, cause=LoadCause.PREFETCH)
    log.unloaded(140.0, B)
    log.loaded(150.0, B, mb=2_000, load_s=5.0, cause=LoadCause.PREFETCH)
    log.received(151.0, "r3", B)
    log.unloaded(160.0, B)
    row = read_recording(log.events).happened
    assert (row.policy, row.n, row.cold, row.slo) == ("recorded", 2, 0.5, 0.5)
    assert (row.loads, row.prefetches, row.wasted_prefetches) == (3, 2, 1)


def test_an_event_that_came_twice_counts_once():
    log = morning()
    assert read_recording([*log.events, *log.events]) == read_recording(log.events)


def test_sizes_that_nobody_measured_come_from_the_last_world_or_the_others():
    log = morning()
    log.received(130.0, "r3", B)
    found = read_recording(log.events)
    assert found.guessed == (B,)
    assert found.workload.models[B].size_mb == 4_000
    assert found.workload.models[B].load_s == pytest.approx(1 + 4_000 / 600)
    status = ModelStatus(model=B, node=NODE, footprint_bytes=9_000 * MIB, load_s=7.0)
    world = WorldSnapshot(taken_at_s=0.0, models={B: status}, slas={B: Sla(model=B, target_s=5.0)})
    found = read_recording(log.events, world)
    assert found.guessed == ()
    assert found.workload.models[B] == WorkloadModel(
        model=B, size_mb=9_000, load_s=7.0, parallel=4, slo_s=5.0
    )


def test_a_load_without_measurements_tells_nothing():
    log = morning()
    log.loaded(200.0, B, mb=None, load_s=None)
    log.received(201.0, "r3", B)
    assert read_recording(log.events).guessed == (B,)


def test_who_has_no_service_time_is_given_the_usual_one():
    log = morning()
    log.received(130.0, "left", A)
    log.add(
        RequestCancelled,
        131.0,
        request_id=RequestId("left"),
        model=A,
        phase=RequestPhase.QUEUED,
        duration_s=1.0,
    )
    log.received(140.0, "broken", A)
    log.dispatched(141.0, "broken", A, wait_s=1.0, cold=False)
    log.dispatched(141.5, "broken", A, wait_s=1.5, cold=False)
    log.failed(145.0, "broken", A, Origin.UPSTREAM)
    log.received(150.0, "b", B)
    services = [arrival.service_s for arrival in read_recording(log.events).workload.arrivals]
    assert services == [2.0, 3.0, 3.0, 4.0, 3.0]


def test_without_any_end_a_second_is_assumed():
    log = Log()
    log.loaded(1.0, A, mb=1_000, load_s=1.0)
    log.received(2.0, "r", A)
    assert read_recording(log.events).workload.arrivals == (Arrival(2.0, A, 1.0),)


def test_what_was_no_work_for_a_model_is_left_out_and_counted():
    log = morning()
    log.received(130.0, "nameless", None)
    log.received(131.0, "unknown", ModelId("x"))
    log.dispatched(131.0, "unknown", ModelId("x"), wait_s=0.0, cold=False)
    log.completed(131.1, "unknown", ModelId("x"), service_s=0.1, status=404)
    log.received(132.0, "refused", A)
    log.failed(132.1, "refused", A, Origin.GATEWAY)
    log.failed(133.0, "never seen", A, Origin.GATEWAY)
    log.dispatched(133.0, "never seen either", A, wait_s=0.0, cold=False)
    log.add(NodeLost, 134.0, node=NODE, error="gone")
    found = read_recording(log.events)
    assert len(found.workload.arrivals) == 2
    assert found.passed_over == 3


def test_so_many_at_once_as_were_seen_at_once():
    log = morning()
    for number in range(6):
        log.received(200.0 + number, f"p{number}", A)
        log.dispatched(200.0 + number, f"p{number}", A, wait_s=0.0, cold=False)
    assert read_recording(log.events).workload.models[A].parallel == 6


def test_a_log_that_tells_nothing_is_refused():
    with pytest.raises(Invalid, match="holds no request"):
        read_recording([])
    log = Log()
    log.received(1.0, "r", A)
    with pytest.raises(Invalid, match="tells no model's size"):
        read_recording(log.events)
