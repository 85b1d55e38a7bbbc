from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.config import PlannerConfig
from contracts.events import LoadCause
from contracts.memory import HOST, PlaceId, PlaceKind, PlaceStatus
from contracts.plan import LoadModel, PlannerState, UnloadModel
from contracts.reasons import Reason
from contracts.world import GpuYield, Residency
from controller.fold import commit, fold
from controller.planner import plan
from controller.pressure import BACK_AFTER_S, LONGEST_AWAY_S
from tests.worlds import NODE, A, B, C, load_started, model, world

HOT, COLD, LOADING, DRAINING = (
    Residency.HOT, Residency.COLD, Residency.LOADING, Residency.DRAINING,
)  # fmt: skip
ONE, TWO = PlaceId("GPU-1"), PlaceId("GPU-2")
GIB_MB = 1024


def run(w, *, reserve=0.2):
    config = PlannerConfig(policy="lru", reserve_ratio=reserve, prefetch=False)
    result = plan(world=w, forecasts={}, state=PlannerState(), config=config)
    return result.plan


def unloads(w, **fields):
    found = run(w, **fields)
    return [action.model for action in found.actions if isinstance(action, UnloadModel)]


def loads(w, **fields):
    found = run(w, **fields)
    return [action.model for action in found.actions if isinstance(action, LoadModel)]


def others(w, gib, *places):
    here = replace(w.nodes[NODE], used_by_others_bytes=int(gib * 1024**3), places=tuple(places))
    return replace(w, nodes={NODE: here})


def three(**fields):
    """10, 6 and 3 of 24 GiB, of which 19.2 may be filled."""
    return world(
        model(A, HOT, mb=10 * GIB_MB, used_s=10.0, **fields),
        model(B, HOT, mb=6 * GIB_MB, used_s=20.0),
        model(C, HOT, mb=3 * GIB_MB, used_s=30.0),
        mb=24 * GIB_MB,
    )


class TestGivingWay:
    def test_half_of_the_reserve_is_there_for_others(self):
        # 24 - 2.8 = 21.2, of which 19 are nine tenths
        assert unloads(others(three(), 2.8)) == []
        assert unloads(others(three(), 3.0)) == [A]

    def test_as_few_as_bring_the_reserve_back_go(self):
        w = others(three(), 6.0)
        assert unloads(w) == [A]
        (action,) = run(w).actions
        assert isinstance(action, UnloadModel)
        assert action.reason is Reason.OTHERS_NEED
        decision = run(w).decisions[0]
        assert dict(decision.evidence) == {
            "others_mb": 6 * 1024, "occupied_mb": 19 * 1024, "freed_mb": 10 * 1024, "loss": 0.0,
        }  # fmt: skip

    def test_a_busy_or_pinned_one_stays(self):
        assert unloads(others(three(in_flight=1), 6.0)) == [B]
        assert unloads(others(three(pinned=True), 6.0)) == [B]

    def test_all_idle_ones_where_that_is_not_enough(self):
        assert unloads(others(three(in_flight=1), 20.0)) == [B, C]

    def test_a_model_that_is_larger_than_was_thought_needs_nobodys_place(self):
        w = three()
        assert unloads(replace(w, models={**w.models, A: model(A, HOT, mb=14 * GIB_MB)})) == []

    def test_nobody_else_goes_while_one_is_on_its_way(self):
        w = others(three(), 6.0)
        for residency in (DRAINING, LOADING):
            moving = replace(w, models={**w.models, C: replace(w.models[C], residency=residency)})
            assert unloads(moving) == []

    def test_nothing_goes_where_nobody_knows_the_memory(self):
        w = three()
        here = replace(w.nodes[NODE], memory_total_bytes=None, used_by_others_bytes=10**12)
        w = replace(w, nodes={NODE: here})
        config = PlannerConfig(policy="lru", budget_bytes=1, prefetch=False)
        found = plan(world=w, forecasts={}, state=PlannerState(), config=config)
        assert found.plan.actions == ()

    def test_on_the_card_that_others_want(self):
        w = world(
            model(A, HOT, mb=10, used_s=10.0, split={ONE: 10 * 1024**3}),
            model(B, HOT, mb=10, used_s=20.0, split={TWO: 10 * 1024**3}),
            mb=48 * GIB_MB,
        )
        places = (
            PlaceStatus(place=ONE, kind=PlaceKind.GPU, total_bytes=24 * 1024**3),
            PlaceStatus(
                place=TWO,
                kind=PlaceKind.GPU,
                total_bytes=24 * 1024**3,
                used_by_others_bytes=16 * 1024**3,
            ),
            PlaceStatus(place=HOST, kind=PlaceKind.HOST),
        )
        assert unloads(others(w, 16.0, *places)) == [B]
        little = replace(places[1], used_by_others_bytes=12 * 1024**3)
        assert unloads(others(w, 12.0, places[0], little)) == []
        assert unloads(others(w, 12.5, places[0], replace(little, total_bytes=22 * 1024**3))) == [B]


def yielded(w, *, times=1, since_s=100.0):
    away = replace(
        w.models[A], residency=COLD, yielded=times, residency_since_s=since_s, last_used_at_s=10.0
    )
    return replace(w, models={**w.models, A: away})


class TestComingBack:
    def test_once_there_is_room_again(self):
        w = yielded(three())
        assert loads(replace(w, taken_at_s=100.0 + BACK_AFTER_S - 0.1)) == []
        ready = replace(w, taken_at_s=100.0 + BACK_AFTER_S)
        assert loads(ready) == [A]
        (action,) = run(ready).actions
        assert isinstance(action, LoadModel)
        assert (action.reason, action.cause) == (Reason.ROOM_BACK, LoadCause.PREFETCH)

    def test_nobody_goes_for_it(self):
        assert loads(others(replace(yielded(three()), taken_at_s=500.0), 1.0)) == []

    @pytest.mark.parametrize(("times", "away_s"), [(2, 30.0), (3, 60.0), (20, LONGEST_AWAY_S)])
    def test_later_each_time(self, times, away_s):
        w = yielded(three(), times=times)
        assert loads(replace(w, taken_at_s=100.0 + away_s - 1.0)) == []
        assert loads(replace(w, taken_at_s=100.0 + away_s)) == [A]

    def test_not_while_it_is_kept_out_or_the_gpu_is_handed_over(self):
        w = replace(yielded(three()), taken_at_s=500.0)
        kept = replace(w, models={**w.models, A: replace(w.models[A], kept_out=True)})
        assert loads(kept) == []
        assert loads(replace(w, gpu_yield=GpuYield(since_s=1.0, keep_bytes=10**12))) == []

    def test_not_beside_another_load(self):
        w = replace(yielded(three()), taken_at_s=500.0)
        loading = replace(w.models[C], residency=LOADING)
        assert loads(replace(w, models={**w.models, C: loading})) == []

    def test_the_one_used_last_comes_first(self):
        w = replace(yielded(three()), taken_at_s=500.0)
        other = replace(w.models[B], residency=COLD, yielded=1, residency_since_s=100.0)
        assert loads(replace(w, models={**w.models, B: other})) == [B]


def test_what_went_for_others_is_marked_until_somebody_asks_for_it():
    w = others(three(), 6.0)
    w = commit(w, run(w))
    assert w.models[A].yielded == 1
    w = replace(w, models={**w.models, A: replace(w.models[A], residency=COLD)})
    ahead = fold(w, load_started(A, 120.0, cause=LoadCause.PREFETCH))
    assert ahead.models[A].yielded == 1
    assert fold(w, load_started(A, 120.0)).models[A].yielded == 0
