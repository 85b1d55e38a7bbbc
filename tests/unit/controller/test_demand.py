"""Whose load goes next, and whom it may send away. Memory is 10 MB: one model at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.events import PriorityClass
from contracts.ids import RequestId
from contracts.plan import LoadModel, Outcome, PlannerState, UnloadModel
from contracts.reasons import Reason
from contracts.world import OpenRequest, Residency, WorldSnapshot
from controller.demand import TOLD_AFTER_S, demands, is_waited_for, moments_s
from controller.planner import plan
from tests.worlds import GATEWAY, A, B, C, D, config, model, world

COLD, HOT = Residency.COLD, Residency.HOT
REALTIME, BATCH, BACKGROUND = PriorityClass


def open_request(name, priority, at_s, *, sent=False):
    return OpenRequest(
        model=name,
        source=GATEWAY,
        received_at_s=at_s,
        dispatched_at_s=at_s if sent else None,
        priority=priority,
    )


def scene(*requests, now_s=100.0, mb=10, preemptible=None, **hot) -> WorldSnapshot:
    """A and what else is named ``hot`` are resident since then; requests make the counts."""
    resident = {A: 0.0, **{{"b": B, "c": C}[name]: at_s for name, at_s in hot.items()}}
    models = []
    for name in (A, B, C):
        mine = [r for r in requests if r.model == name]
        waiting = [r.received_at_s for r in mine if r.dispatched_at_s is None]
        models.append(
            model(
                name,
                HOT if name in resident else COLD,
                since_s=resident.get(name, 0.0),
                in_flight=len(mine) - len(waiting),
                waiting=len(waiting),
                wanted_since_s=min(waiting, default=None),
                used_s=max((r.received_at_s for r in mine), default=None),
                preemptible=(preemptible or {}).get(name, 0),
            )
        )
    w = world(*models, mb=mb, now_s=now_s)
    return replace(w, requests={RequestId(str(n)): r for n, r in enumerate(requests)})


def decide(w, **fields):
    return plan(world=w, forecasts={}, state=PlannerState(), config=config("lru", **fields)).plan


def unloads(made):
    return [action for action in made.actions if isinstance(action, UnloadModel)]


def loads(made):
    return [action.model for action in made.actions if isinstance(action, LoadModel)]


def said(made, subject):
    (decision,) = [d for d in made.decisions if d.subject == subject]
    return decision.outcome, decision.reason


class TestOrder:
    def test_by_age_with_a_head_start_for_each_class(self):
        w = scene(
            open_request(B, BACKGROUND, 10.0),
            open_request(C, REALTIME, 69.0),
            now_s=99.0,
        )
        assert [d.status.model for d in demands(w, w.on_node(w.models[A].node))] == [C, B]
        later = scene(open_request(B, BACKGROUND, 10.0), open_request(C, REALTIME, 71.0))
        first, second = demands(later, later.on_node(later.models[A].node))
        assert (first.status.model, first.due_s, first.since_s) == (B, 70.0, 10.0)
        assert (second.status.model, second.priority) == (C, REALTIME)

    def test_the_highest_class_that_waits_counts_and_what_was_sent_does_not(self):
        w = scene(
            open_request(B, BACKGROUND, 10.0),
            open_request(B, BATCH, 50.0),
            open_request(B, BATCH, 60.0),
            open_request(B, REALTIME, 5.0, sent=True),
        )
        (demand,) = demands(w, w.on_node(w.models[A].node))
        assert (demand.priority, demand.since_s, demand.due_s) == (BATCH, 10.0, 70.0)

    def test_what_is_known_only_as_a_number_is_realtime(self):
        w = replace(world(model(B, waiting=2, wanted_since_s=50.0)), requests={})
        (demand,) = demands(w, w.on_node(w.models[B].node))
        assert (demand.priority, demand.since_s) == (REALTIME, 50.0)
        nameless = replace(world(model(B, waiting=2)), requests={})
        assert demands(nameless, nameless.on_node(w.models[B].node))[0].since_s == 0.0


class TestSparing:
    def test_background_work_leaves_a_chat_alone_that_was_used_a_moment_ago(self):
        w = scene(open_request(B, BACKGROUND, 99.0), now_s=100.0)
        w = replace(w, models={**w.models, A: replace(w.models[A], last_used_at_s=90.0)})
        made = decide(w)
        assert made.actions == ()
        assert said(made, B) == (Outcome.HOLD, Reason.MAY_WAIT)
        assert loads(decide(replace(w, taken_at_s=120.0))) == [B]

    def test_not_for_ever(self):
        w = scene(open_request(B, BACKGROUND, 40.0), now_s=99.0)
        w = replace(w, models={**w.models, A: replace(w.models[A], last_used_at_s=98.0)})
        assert loads(decide(w)) == []
        assert loads(decide(replace(w, taken_at_s=100.0))) == [B]

    def test_realtime_spares_nobody_and_others_take_who_is_not_spared(self):
        w = scene(open_request(B, REALTIME, 99.0))
        w = replace(w, models={**w.models, A: replace(w.models[A], last_used_at_s=98.0)})
        assert loads(decide(w)) == [B]
        two = scene(open_request(C, BATCH, 99.0), mb=20, b=0.0)
        fresh = replace(two.models[A], last_used_at_s=98.0)
        old = replace(two.models[B], last_used_at_s=50.0)
        two = replace(two, models={**two.models, A: fresh, B: old})
        (unload,) = unloads(decide(two))
        assert unload.model == B

    def test_a_load_that_spares_somebody_holds_up_nobody(self):
        """B may wait for A's chat; C needs no room."""
        w = scene(open_request(B, BACKGROUND, 10.0), open_request(C, REALTIME, 60.0), mb=20)
        used = replace(w.models[A], last_used_at_s=60.0)
        big = replace(w.models[B], footprint_bytes=2 * (used.footprint_bytes or 0))
        w = replace(w, models={**w.models, A: used, B: big}, taken_at_s=65.0)
        assert loads(decide(w)) == [C]


class TestTurns:
    def busy(self, now_s: float, *, since_s: float = 0.0, waits_s: float = 80.0, **fields):
        w = scene(
            open_request(A, REALTIME, 79.0, sent=True),
            open_request(A, REALTIME, 79.5),
            open_request(B, REALTIME, waits_s),
            now_s=now_s,
        )
        return replace(
            w,
            models={**w.models, A: replace(w.models[A], residency_since_s=since_s, **fields)},
        )

    def test_a_busy_model_goes_once_another_has_waited_for_a_whole_turn(self):
        assert decide(self.busy(94.0)).actions == ()
        made = decide(self.busy(95.0))
        (unload,) = unloads(made)
        assert (unload.model, unload.drain_s, unload.preempt) == (A, 60.0, False)
        assert said(made, A) == (Outcome.CHANGE, Reason.FAIR_TURN)
        assert loads(made) == [B]

    def test_it_keeps_its_place_for_a_turn_itself(self):
        assert decide(self.busy(99.0, since_s=85.0)).actions == ()
        assert loads(decide(self.busy(100.0, since_s=85.0))) == [B]

    @pytest.mark.parametrize("kept", [{"pinned": True}, {"spared_until_s": 101.0}])
    def test_who_may_not_go_does_not(self, kept):
        assert decide(self.busy(100.0, **kept)).actions == ()

    def test_turns_can_be_switched_off(self):
        assert decide(self.busy(1_000.0), turn_s=None).actions == ()

    def test_idle_models_go_before_busy_ones(self):
        w = scene(
            open_request(A, REALTIME, 10.0, sent=True),
            open_request(C, REALTIME, 50.0),
            mb=20,
            b=0.0,
        )
        (unload,) = unloads(decide(w))
        assert (unload.model, unload.drain_s) == (B, None)

    def test_what_is_of_a_lower_class_has_no_turn_against_a_higher_one(self):
        w = scene(
            open_request(A, BATCH, 90.0, sent=True),
            open_request(A, BATCH, 90.0),
            open_request(B, REALTIME, 98.0),
        )
        (unload,) = unloads(decide(w))
        assert (unload.model, unload.preempt) == (A, False)

    def test_until_gateways_have_told_what_may_be_cancelled_nothing_drains_in_vain(self):
        w = scene(open_request(A, BATCH, 99.9, sent=True), open_request(B, REALTIME, 99.9))
        assert unloads(decide(w)) == []
        assert 99.9 + TOLD_AFTER_S in moments_s(w, tuple(w.models.values()), config())

    def test_of_two_that_are_busy_only_as_many_go_as_must(self):
        w = scene(
            open_request(A, REALTIME, 10.0, sent=True),
            open_request(B, REALTIME, 10.0, sent=True),
            open_request(C, REALTIME, 50.0),
            mb=20,
            b=20.0,
        )
        (unload,) = unloads(decide(w))
        assert unload.model == A, "it has been resident for longer"

    def test_a_higher_class_is_not_held_up_by_a_lower_one_that_waits_for_its_turn(self):
        w = scene(
            open_request(A, REALTIME, 10.0, sent=True),
            open_request(C, BACKGROUND, 30.0),
            open_request(B, REALTIME, 99.0),
            mb=20,
        )
        big = replace(w.models[C], footprint_bytes=20 * 1024**2)
        w = replace(w, models={**w.models, C: big, D: model(D, HOT)})
        made = decide(w)
        assert said(made, C) == (Outcome.HOLD, Reason.NO_ROOM)
        assert [unload.model for unload in unloads(made)] == [D]
        assert loads(made) == [B]
        background = replace(w.requests[RequestId("2")], priority=BACKGROUND)
        w = replace(w, requests={**w.requests, RequestId("2"): background})
        assert decide(w).actions == ()

    def test_who_waits_behind_one_of_its_own_class_evicts_nobody(self):
        """C waits for its turn; B could have A's place, if A were idle, and may not."""
        w = scene(
            open_request(A, REALTIME, 99.0, sent=True),
            open_request(C, REALTIME, 97.0),
            open_request(B, REALTIME, 98.0),
        )
        assert said(decide(w), B) == (Outcome.HOLD, Reason.NO_ROOM)


class TestPreemption:
    def scene(self, waits=REALTIME, runs=BACKGROUND, *, preemptible=1, since_s=98.0):
        return scene(
            open_request(A, runs, 97.0, sent=True),
            open_request(B, waits, since_s),
            preemptible={A: preemptible},
        )

    def test_it_may_end_by_itself_within_a_second(self):
        assert decide(self.scene(since_s=99.5)).actions == ()

    def test_work_that_may_be_cancelled_makes_room_for_realtime(self):
        made = decide(self.scene())
        (unload,) = unloads(made)
        assert (unload.model, unload.preempt, unload.drain_s) == (A, True, 60.0)
        assert said(made, A) == (Outcome.CHANGE, Reason.PREEMPTED)

    def test_where_something_else_runs_too_it_is_waited_for(self):
        (unload,) = unloads(decide(self.scene(preemptible=0)))
        assert not unload.preempt

    @pytest.mark.parametrize("waits", [BATCH, BACKGROUND])
    def test_never_for_anything_but_realtime(self, waits):
        assert not any(unload.preempt for unload in unloads(decide(self.scene(waits))))

    def test_never_of_realtime(self):
        assert decide(self.scene(runs=REALTIME)).actions == ()


def test_who_is_waited_for():
    w = scene(open_request(B, BATCH, 1.0))
    assert [is_waited_for(w, name) for name in (A, B, D)] == [False, True, False]


def test_the_next_look_is_when_time_alone_may_change_something():
    w = scene(open_request(A, REALTIME, 90.0, sent=True), open_request(B, BACKGROUND, 95.0))
    w = replace(w, models={**w.models, A: replace(w.models[A], spared_until_s=103.0)})
    moments = moments_s(w, w.on_node(w.models[A].node), config())
    assert sorted(moments) == [103.0, 120.0, 155.0, 170.0]
    assert moments_s(w, w.on_node(w.models[A].node), config(turn_s=None)) == (155.0, 120.0, 103.0)
    quiet = scene()
    assert moments_s(quiet, quiet.on_node(w.models[A].node), config()) == ()
