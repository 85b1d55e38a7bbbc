"""A machine that has much to do holds prefetches and batches back, and does not flap."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.config import StrainConfig
from contracts.events import LoadCause, PriorityClass
from contracts.ids import NodeId, RequestId
from contracts.plan import LoadModel, Outcome, PlannerState
from contracts.readings import ProbeReading
from contracts.reasons import Reason
from contracts.world import LoadTime, OpenRequest, Residency, Strain
from controller.fold import fold
from controller.lulls import PEOPLE_S, background_limits
from controller.planner import plan
from controller.strains import (
    FORGET_S,
    LASTS_S,
    MAX_LOADS,
    SLOW_LOADS,
    load_slowness,
    percentile,
    thresholds,
    with_strains,
)
from tests.worlds import GATEWAY, NODE, A, B, C, config, curve, loaded, model, world

OTHER = NodeId("other")
START_S = 100.0
HOT = Residency.HOT


def read(snapshot, at_s: float, *, node=NODE, settings=None, **figures):
    """The world after one more reading of the node's machine."""
    node_after = replace(snapshot.nodes[node], reading=ProbeReading(at_s=at_s, **figures))
    snapshot = replace(snapshot, taken_at_s=at_s, nodes={**snapshot.nodes, node: node_after})
    return with_strains(snapshot, settings or config("headstart"))


def reasons(snapshot, node=NODE):
    return [strain.reason for strain in snapshot.nodes[node].strains]


def strained(snapshot, *kinds: Reason, node=NODE):
    strains = tuple(Strain(reason=kind, since_s=0.0, level=0.99, threshold=0.5) for kind in kinds)
    nodes = {**snapshot.nodes, node: replace(snapshot.nodes[node], strains=strains)}
    return replace(snapshot, nodes=nodes)


class TestBegins:
    @pytest.mark.parametrize(
        ("figure", "reason"),
        [
            ("gpu_utilization_ratio", Reason.GPU_BUSY),
            ("cpu_utilization_ratio", Reason.CPU_BUSY),
        ],
    )
    def test_when_it_lasts_and_not_for_a_moment(self, figure, reason):
        w = read(world(model(A)), START_S, **{figure: 1.0})
        assert reasons(w) == []
        w = read(w, START_S + 5.0, **{figure: 0.0})
        assert reasons(w) == []
        for tick in range(2, 8):
            w = read(w, START_S + 5.0 * tick, **{figure: 1.0})
        assert reasons(w) == [reason]

    def test_memory_that_is_taken_is_no_moment(self):
        full = {"gpu_memory_total_bytes": 100, "gpu_memory_used_bytes": 95}
        settings = config("headstart", reserve_ratio=0.2)
        assert reasons(read(world(model(A)), START_S, settings=settings, **full)) == [
            Reason.VRAM_FULL
        ]

    def test_not_for_memory_that_our_own_orders_may_fill(self):
        full = {"gpu_memory_total_bytes": 100, "gpu_memory_used_bytes": 99}
        assert thresholds(config(reserve_ratio=0.05))[Reason.VRAM_FULL] == 0.95
        assert reasons(read(world(model(A)), START_S, settings=config(), **full)) == []

    @pytest.mark.parametrize(
        ("key", "figure", "reason"),
        [
            ("gpu_ratio", "gpu_utilization_ratio", Reason.GPU_BUSY),
            ("cpu_ratio", "cpu_utilization_ratio", Reason.CPU_BUSY),
        ],
    )
    def test_at_the_threshold_that_is_set(self, key, figure, reason):
        settings = config(strain=StrainConfig(**{key: 0.2}))
        assert reasons(read(world(model(A)), START_S, settings=settings, **{figure: 0.5})) == [
            reason
        ]

    def test_nowhere_else(self):
        w = world(model(A), model(B, node=OTHER))
        w = read(w, START_S, node=OTHER, settings=config(strain=StrainConfig(gpu_ratio=0.1)))
        assert reasons(w, OTHER) == []
        w = read(
            w,
            START_S + 5.0,
            node=OTHER,
            settings=config(strain=StrainConfig(gpu_ratio=0.1)),
            gpu_utilization_ratio=1.0,
        )
        assert (reasons(w), reasons(w, OTHER)) == ([], [Reason.GPU_BUSY])


class TestEnds:
    def busy(self):
        w = world(model(A))
        for tick in range(8):
            w = read(w, START_S + 5.0 * tick, gpu_utilization_ratio=1.0)
        assert reasons(w) == [Reason.GPU_BUSY]
        return w

    def test_once_it_is_clearly_below_for_a_while(self):
        w = self.busy()
        at_s = w.taken_at_s
        # Around the threshold it neither ends nor begins again.
        for tick in range(1, 20):
            w = read(w, at_s + 5.0 * tick, gpu_utilization_ratio=0.85 + 0.05 * (-1) ** tick)
            assert reasons(w) == [Reason.GPU_BUSY]
        for tick in range(20, 24):
            w = read(w, at_s + 5.0 * tick, gpu_utilization_ratio=0.1)
        assert reasons(w) == []

    def test_not_before_it_has_lasted(self):
        w = read(
            world(model(A)),
            START_S,
            settings=config(strain=StrainConfig(gpu_ratio=0.5)),
            gpu_utilization_ratio=1.0,
        )
        assert reasons(w) == [Reason.GPU_BUSY]
        quick = config(strain=StrainConfig(gpu_ratio=0.9))
        w = read(w, START_S + 1.0, settings=quick, gpu_utilization_ratio=0.0)
        assert reasons(w) == [Reason.GPU_BUSY]
        w = read(w, START_S + LASTS_S, settings=quick, gpu_utilization_ratio=0.0)
        assert reasons(w) == []

    def test_when_nothing_is_told_any_more(self):
        w = self.busy()
        late = with_strains(replace(w, taken_at_s=w.taken_at_s + FORGET_S + 1.0), config())
        assert reasons(late) == []
        assert late.nodes[NODE].levels == {}
        gone = replace(w, nodes={NODE: replace(w.nodes[NODE], reading=None)})
        assert reasons(with_strains(gone, config())) == []
        lost = replace(w, nodes={NODE: replace(w.nodes[NODE], alive=False)})
        assert reasons(with_strains(lost, config())) == []


def test_a_reading_counts_once_however_often_the_world_is_looked_at():
    w = read(world(model(A)), START_S, gpu_utilization_ratio=1.0)
    again = with_strains(replace(w, taken_at_s=START_S + 1.0), config("headstart"))
    assert again.nodes[NODE] is w.nodes[NODE]


class TestLoads:
    def slow(self, snapshot, *times: float, expected_s: float | None = 10.0):
        loads = tuple(
            LoadTime(model=A, node=NODE, ended_at_s=START_S, load_s=time, expected_s=expected_s)
            for time in times
        )
        return replace(snapshot, recent_loads=loads, taken_at_s=START_S + 1.0)

    def test_that_take_much_longer_than_expected_are_a_strain_while_they_are_recent(self):
        settings = config()
        w = with_strains(self.slow(world(model(A)), 10.0, 10.0 * SLOW_LOADS + 1.0), settings)
        assert reasons(w) == [Reason.LOADS_SLOW]
        assert load_slowness(w, NODE, settings) == (21.0, 2.1)
        later = replace(w, taken_at_s=START_S + settings.strain.load_window_s + 1.0)
        assert reasons(with_strains(later, settings)) == []

    def test_the_window_is_configured(self):
        settings = config(strain=StrainConfig(load_window_s=5.0))
        w = replace(self.slow(world(model(A)), 50.0), taken_at_s=START_S + 6.0)
        assert reasons(with_strains(w, settings)) == []
        assert load_slowness(w, NODE, settings) == (None, None)

    def test_the_percentile_is_configured(self):
        w = self.slow(world(model(A)), 10.0, 10.0, 10.0, 50.0)
        assert reasons(with_strains(w, config(strain=StrainConfig(percentile=50.0)))) == []
        assert reasons(with_strains(w, config(strain=StrainConfig(percentile=99.0)))) == [
            Reason.LOADS_SLOW
        ]

    def test_of_which_nothing_was_expected_say_nothing(self):
        w = self.slow(world(model(A)), 50.0, expected_s=None)
        assert reasons(with_strains(w, config())) == []
        assert load_slowness(w, NODE, config()) == (50.0, None)

    def test_are_remembered_with_what_was_expected_of_them(self):
        w = world(model(A, Residency.LOADING, load_s=8.0))
        w = fold(w, loaded(A, 110.0, load_s=20.0))
        assert w.recent_loads == (
            LoadTime(model=A, node=NODE, ended_at_s=110.0, load_s=20.0, expected_s=8.0),
        )
        for number in range(MAX_LOADS + 5):
            status = replace(w.models[A], residency=Residency.LOADING)
            w = fold(replace(w, models={A: status}), loaded(A, 120.0 + number, load_s=20.0))
        assert len(w.recent_loads) == MAX_LOADS

    def test_percentiles(self):
        assert percentile([], 0.95) is None
        assert percentile([3.0], 0.01) == 3.0
        assert percentile([1.0, 2.0, 3.0, 4.0], 1.0) == 4.0


class TestPrefetch:
    def planned(self, snapshot):
        forecasts = {A: curve(A, {20: 3.0})}
        return plan(
            world=snapshot, forecasts=forecasts, state=PlannerState(), config=config("headstart")
        ).plan

    @pytest.mark.parametrize(
        "reason", [Reason.GPU_BUSY, Reason.CPU_BUSY, Reason.VRAM_FULL, Reason.LOADS_SLOW]
    )
    def test_waits_and_says_why(self, reason):
        w = world(model(A))
        assert [type(action) for action in self.planned(w).actions] == [LoadModel]
        held = self.planned(strained(w, reason))
        assert held.actions == ()
        (decision,) = held.decisions
        assert (decision.subject, decision.outcome, decision.reason) == (NODE, Outcome.HOLD, reason)
        assert dict(decision.evidence) == {"level": 0.99, "threshold": 0.5}

    def test_loads_that_are_waited_for_do_not_wait(self):
        w = world(model(A, waiting=1, wanted_since_s=90.0))
        (action,) = self.planned(strained(w, Reason.GPU_BUSY, Reason.VRAM_FULL)).actions
        assert isinstance(action, LoadModel)
        assert action.cause is LoadCause.DEMAND


class TestBatches:
    def limits(self, snapshot, slots=8):
        return background_limits(snapshot, {}, config(), slots=slots)[0]

    def test_have_one_slot_and_no_loads_while_people_are_there(self):
        w = strained(world(model(A, HOT, last_realtime_at_s=90.0), model(B)), Reason.GPU_BUSY)
        limits = self.limits(w)
        assert (limits.slots, limits.loadable, limits.reason) == (1, (), Reason.GPU_BUSY)

    def test_keep_the_machine_busy_when_nobody_else_does(self):
        quiet_s = 100.0 - PEOPLE_S - 1.0
        w = strained(world(model(A, HOT, last_realtime_at_s=quiet_s), model(B)), Reason.GPU_BUSY)
        limits = self.limits(w)
        assert (limits.slots, limits.loadable) == (8, ())
        running = OpenRequest(
            model=A, source=GATEWAY, received_at_s=0.0, priority=PriorityClass.REALTIME
        )
        assert self.limits(replace(w, requests={RequestId("r"): running})).slots == 1

    def test_load_nothing_where_memory_is_full_and_run_on(self):
        w = strained(world(model(A, HOT, last_realtime_at_s=90.0), model(B)), Reason.VRAM_FULL)
        limits = self.limits(w)
        assert (limits.slots, limits.loadable, limits.reason) == (8, (), Reason.DEMAND)

    def test_go_to_the_machine_that_is_not_strained(self):
        w = world(model(A, HOT, last_realtime_at_s=90.0), model(B), model(C, node=OTHER), mb=30)
        limits = self.limits(strained(w, Reason.CPU_BUSY))
        assert (limits.slots, limits.loadable) == (4, (C,))


def test_a_share_of_no_memory_is_none():
    told = {"gpu_memory_total_bytes": 0, "gpu_memory_used_bytes": 5}
    assert reasons(read(world(model(A)), START_S, **told)) == []
