"""Each policy's order, with numbers that can be followed by hand."""

from __future__ import annotations

import math

import pytest

from contracts.errors import Invalid
from contracts.forecasts import ForecastStatus, ModelForecast
from contracts.ids import ModelId
from contracts.plan import PlannerState, Wave
from contracts.reasons import Reason
from contracts.world import PrefetchTally, Residency, Sla
from controller.memory import room
from controller.policies.base import (
    UNMEASURED_LOAD_S,
    Candidate,
    Context,
    expected_load_s,
    idle_s,
)
from controller.policies.expected_loss import (
    FIRST_PRICE,
    MAX_PRICE,
    PRICE_HALF_LIFE_S,
    PRICE_STEP,
    ExpectedLoss,
    faded_price,
)
from controller.policies.gdsf import Gdsf
from controller.policies.recency import IdleTimeout, LocalAILru, Lru
from controller.policies.registry import POLICIES, policy_named
from tests.worlds import MIB, NODE, A, B, C, config, curve, model, world

HOT = Residency.HOT


def context(w, *forecasts, state=None, cfg=None):
    return Context(
        now_s=w.taken_at_s,
        node=NODE,
        world=w,
        forecasts={forecast.model: forecast for forecast in forecasts},
        state=state or PlannerState(),
        config=cfg or config(),
        models=w.on_node(NODE),
    )


def ranked(policy, w, *forecasts, **fields):
    found = policy.victims(context(w, *forecasts, **fields), w.on_node(NODE))
    return [victim.model for victim in found]


class TestContext:
    def test_a_curve_counts_until_it_expires(self):
        w = world(model(A), now_s=159.0)
        forecast = curve(A, {20: 0.7}, expires_s=160.0)
        assert context(w, forecast).next_use(A) is forecast.next_use
        late = world(model(A), now_s=160.0)
        assert context(late, forecast).next_use(A) is None

    def test_a_degraded_or_missing_one_does_not(self):
        w = world(model(A))
        assert context(w).next_use(A) is None
        silent = ModelForecast(model=A, next_use=None, signals=())
        assert context(w, silent).next_use(A) is None
        assert context(w, curve(A, {20: 0.7}, status=ForecastStatus.DEGRADED)).next_use(A) is None

    def test_target_and_weight_come_from_the_sla(self):
        sla = Sla(model=A, target_s=5.0, weight=3.0)
        found = context(world(model(A), slas={A: sla}), cfg=config(default_target_s=2.5))
        assert (found.target_s(A), found.weight(A)) == (5.0, 3.0)
        assert (found.target_s(B), found.weight(B)) == (2.5, 1.0)


def test_a_load_is_expected_to_take_what_was_measured_else_what_its_bytes_take():
    assert expected_load_s(model(A, load_s=3.0)) == 3.0
    read_s = 1200 * MIB / 600e6
    assert expected_load_s(model(A, load_s=None, mb=1200)) == pytest.approx(1 + read_s)
    assert expected_load_s(model(A, load_s=None, mb=None)) == UNMEASURED_LOAD_S


def test_idle_time_counts_from_the_last_use_or_from_the_load():
    w = world(model(A), now_s=100.0)
    assert idle_s(context(w), model(A, HOT, since_s=10.0, used_s=70.0)) == 30.0
    assert idle_s(context(w), model(A, HOT, since_s=90.0)) == 10.0
    assert idle_s(context(w), model(A, HOT, used_s=101.0)) == 0.0


def test_policies_by_name():
    assert set(POLICIES) == {
        "headstart",
        "lru",
        "localai-lru",
        "idle-timeout",
        "gdsf",
        "weighted-score",
    }
    for name in POLICIES:
        assert policy_named(name).name == name
    with pytest.raises(Invalid, match=r"unknown policy 'lfu'; known are gdsf, headstart"):
        policy_named("lfu")


class TestLru:
    def test_longest_idle_first_then_by_name(self):
        w = world(model(A, HOT, used_s=90.0), model(C, HOT, used_s=50.0), model(B, HOT, used_s=50))
        assert ranked(Lru(), w) == [B, C, A]

    def test_the_idle_time_is_the_evidence(self):
        w = world(model(A, HOT, used_s=90.0), now_s=100.0)
        (victim,) = Lru().victims(context(w), w.on_node(NODE))
        assert victim.reason is Reason.LEAST_RECENTLY_USED
        assert (victim.freed_bytes, victim.loss) == (10 * MIB, 0.0)
        assert victim.evidence == (("idle_s", 10.0),)

    def test_it_never_looks_ahead_expires_bounds_or_learns(self):
        w = world(model(A), model(B, HOT))
        found = context(w, curve(A, {20: 5.0}))
        assert Lru().candidates(found, w.on_node(NODE)) == ()
        candidate = Candidate(model=A, gain=1.0, load_s=8.0)
        assert Lru().swap(found, candidate, w.on_node(NODE), room(w, NODE, found.config)) is None
        assert Lru().expired(found, w.on_node(NODE)) == ()
        assert Lru().model_limit(found) is None
        assert Lru().learn(found) is found.state


class TestLocalAILru:
    def limit(self, *sizes, mb=30, **fields):
        names = [A, B, C]
        w = world(*(model(n, mb=s) for n, s in zip(names, sizes, strict=False)), mb=mb)
        return LocalAILru().model_limit(context(w, **fields))

    def test_so_many_as_always_fit(self):
        assert self.limit(20, 10, 5) == 2
        assert self.limit(20, 10, 5, mb=29) == 1
        assert self.limit(20, 10, 5, mb=35) == 3

    def test_at_least_one(self):
        assert self.limit(40) == 1

    def test_with_the_reserve_fewer(self):
        assert self.limit(20, 10, 5, cfg=config(reserve_ratio=0.2)) == 1

    def test_none_where_a_size_or_the_room_is_not_known(self):
        assert self.limit(20, None) is None
        assert self.limit(20, mb=None) is None
        assert self.limit() is None


class TestIdleTimeout:
    def test_from_the_idle_time_on_they_go(self):
        w = world(model(A, HOT, used_s=10.0), model(B, HOT, used_s=10.5), now_s=910.0)
        (victim,) = IdleTimeout().expired(context(w), w.on_node(NODE))
        assert (victim.model, victim.reason) == (A, Reason.IDLE_TIMEOUT)

    def test_how_long_can_be_set(self):
        w = world(model(A, HOT, used_s=90.0), now_s=100.0)
        found = context(w, cfg=config(idle_timeout_s=10.0))
        assert [v.model for v in IdleTimeout().expired(found, w.on_node(NODE))] == [A]


class TestGdsf:
    def test_h_is_inflation_plus_count_times_load_time_per_mb(self):
        w = world(
            model(A, HOT, mb=10, load_s=5.0, arrivals=4), model(B, HOT, mb=4, load_s=8, arrivals=0)
        )
        state = Gdsf().learn(context(w, state=PlannerState(gdsf_inflation=1.5)))
        assert state.gdsf_value == {A: 1.5 + 4 * 5.0 / 10}
        assert state.seen_arrivals == {A: 4}

    def test_a_model_without_new_requests_keeps_its_old_h(self):
        w = world(model(A, HOT, arrivals=4))
        state = Gdsf().learn(context(w))
        again = context(w, state=state)
        assert Gdsf().learn(again) is again.state

    def test_an_unknown_size_counts_as_one_mb(self):
        w = world(model(A, HOT, mb=None, load_s=5.0, arrivals=2))
        assert Gdsf().learn(context(w)).gdsf_value == {A: 10.0}

    def test_least_h_first(self):
        w = world(model(A, HOT), model(B, HOT), model(C, HOT))
        state = PlannerState(gdsf_value={A: 2.0, B: 1.0})
        assert ranked(Gdsf(), w, state=state) == [C, B, A]
        victims = Gdsf().victims(context(w, state=state), w.on_node(NODE))
        assert [victim.loss for victim in victims] == [0.0, 1.0, 2.0]
        assert victims[1].reason is Reason.LEAST_VALUE_PER_BYTE
        assert victims[1].evidence == (("value", 1.0),)


class TestExpectedLoss:
    policy = ExpectedLoss()

    def test_without_any_forecast_it_is_lru(self):
        w = world(model(A, HOT, used_s=90.0), model(B, HOT, used_s=50.0))
        victims = self.policy.victims(context(w), w.on_node(NODE))
        assert [v.model for v in victims] == [B, A]
        assert {v.reason for v in victims} == {Reason.LEAST_RECENTLY_USED}

    def test_least_expected_loss_per_byte_first(self):
        # P(use in 45 s): a 1 - e^-0.1, b 1 - e^-2; each would make one request late
        w = world(model(A, HOT), model(B, HOT))
        victims = self.policy.victims(
            context(w, curve(A, {20: 0.1}), curve(B, {20: 2.0})), w.on_node(NODE)
        )
        assert [v.model for v in victims] == [A, B]
        assert victims[0].loss == pytest.approx(-math.expm1(-0.1))
        assert victims[1].loss == pytest.approx(-math.expm1(-2.0))
        assert victims[0].reason is Reason.LEAST_EXPECTED_LOSS
        assert victims[0].evidence == (
            ("probability", 0.0952),
            ("cost", 1.0),
            ("loss", 0.0952),
            ("freed_mb", 10),
        )

    def test_the_same_loss_of_a_larger_model_frees_more(self):
        forecasts = curve(A, {20: 1.0}), curve(B, {20: 1.0})
        assert ranked(self.policy, world(model(A, HOT, mb=5), model(B, HOT)), *forecasts) == [B, A]

    def test_a_weight_and_a_wave_make_it_dearer(self):
        forecasts = curve(A, {20: 1.0}), curve(B, {20: 1.0})
        dear = world(model(A, HOT), model(B, HOT), slas={A: Sla(model=A, target_s=2.0, weight=2.0)})
        assert ranked(self.policy, dear, *forecasts) == [B, A]
        # three at a time: the first waits for the load, the two others for half of it
        state = PlannerState(waves={A: Wave(begun_s=0.0, requests=1, usual=3.0)})
        w = world(model(A, HOT), model(B, HOT))
        assert ranked(self.policy, w, *forecasts, state=state) == [B, A]
        found = context(w, *forecasts, state=state)
        assert self.policy.victims(found, w.on_node(NODE))[1].loss == pytest.approx(
            2 * -math.expm1(-1.0)
        )

    def test_a_load_that_callers_hardly_notice_costs_little(self):
        # half of the wait that is accepted is half a request made late
        w = world(model(A, HOT, load_s=1.0), model(B, HOT, load_s=8.0))
        forecasts = curve(A, {20: 1.0}), curve(B, {20: 1.0})
        victims = self.policy.victims(context(w, *forecasts), w.on_node(NODE))
        assert [v.loss for v in victims] == pytest.approx(
            [0.5 * -math.expm1(-1.0), -math.expm1(-1.0)]
        )

    def test_a_model_without_a_forecast_is_judged_by_how_long_it_was_idle(self):
        # a: idle 15 s, so P(use in 45 s) = 45 / 60; b: hazard 2 over the window, P = 0.86
        w = world(model(A, HOT, used_s=85.0), model(B, HOT), now_s=100.0)
        victims = self.policy.victims(context(w, curve(B, {20: 2.0})), w.on_node(NODE))
        assert [v.model for v in victims] == [A, B]
        assert victims[0].loss == pytest.approx(0.75)

    def test_a_degraded_forecast_weighs_a_victim_and_loads_nothing_ahead(self):
        w = world(model(A, HOT, used_s=99.0), model(B, HOT), now_s=100.0)
        rate = curve(A, {45: 0.1}, status=ForecastStatus.DEGRADED)
        found = context(w, rate, curve(B, {20: 2.0}))
        victims = self.policy.victims(found, w.on_node(NODE))
        assert victims[0].loss == pytest.approx(-math.expm1(-0.1))
        cold = world(model(A))
        assert self.policy.candidates(context(cold, rate), cold.on_node(NODE)) == ()

    def test_where_all_are_degraded_it_is_lru(self):
        w = world(model(A, HOT, used_s=90.0), model(B, HOT, used_s=50.0))
        rates = [curve(m, {45: 0.1}, status=ForecastStatus.DEGRADED) for m in (A, B)]
        assert ranked(self.policy, w, *rates) == [B, A]

    def test_one_that_frees_nothing_known_goes_last(self):
        w = world(model(A, HOT, mb=None), model(B, HOT))
        assert ranked(self.policy, w, curve(A, {20: 0.1}), curve(B, {20: 3.0})) == [B, A]

    def test_a_use_past_the_window_is_no_loss(self):
        w = world(model(A, HOT), model(B, HOT))
        victims = self.policy.victims(
            context(w, curve(A, {80: 5.0}), curve(B, {20: 0.1}), cfg=config(window_s=60.0)),
            w.on_node(NODE),
        )
        assert victims[0].model == A
        assert victims[0].loss == 0.0

    def test_the_gain_of_a_prefetch_is_the_lateness_it_saves(self):
        # load 8 s, target 2 s: a request due in 20 s with P = 0.5
        w = world(model(A))
        (candidate,) = self.policy.candidates(
            context(w, curve(A, {20: math.log(2)})), w.on_node(NODE)
        )
        assert candidate.gain == pytest.approx(0.5)
        assert candidate.evidence == (("probability", 0.5), ("load_s", 8.0), ("gain", 0.5))

    def test_a_request_too_soon_or_too_late_is_no_gain(self):
        # before 8 - 2 = 6 s it would still find the load; after 8 + 45 = 53 s it is not aimed at
        for when_s in (4, 80):
            found = context(world(model(A)), curve(A, {when_s: 3.0}))
            (candidate,) = self.policy.candidates(found, found.world.on_node(NODE))
            assert candidate.gain == 0.0

    def test_the_aim_reaches_the_horizon_beyond_the_load(self):
        # of a hazard of 3 that is spread over 45 to 60 s, 8 / 15 lie before 8 + 45 = 53 s
        w = world(model(A))
        (candidate,) = self.policy.candidates(context(w, curve(A, {60: 3.0})), w.on_node(NODE))
        assert candidate.gain == pytest.approx(-math.expm1(-3.0 * 8 / 15))

    def test_a_load_shorter_than_the_target_is_worth_it_at_once(self):
        w = world(model(A, load_s=1.0))
        (candidate,) = self.policy.candidates(context(w, curve(A, {1: 3.0})), w.on_node(NODE))
        assert candidate.gain == pytest.approx(0.5 * -math.expm1(-3.0))

    def test_most_gain_for_the_time_of_the_load_first_and_none_without_a_forecast(self):
        w = world(model(A, load_s=16.0), model(B), model(C))
        found = self.policy.candidates(
            context(w, curve(A, {20: 0.7}), curve(C, {20: 0.5})), w.on_node(NODE)
        )
        assert [c.model for c in found] == [C, A]

    def test_where_none_beats_the_price_the_best_is_named(self):
        w = world(model(A), model(B))
        found = context(w, curve(A, {20: 0.05}), curve(B, {20: 0.08}))
        assert [c.model for c in self.policy.candidates(found, w.on_node(NODE))] == [B]
        (best,) = self.policy.candidates(found, w.on_node(NODE))
        assert self.policy.swap(found, best, (), room(w, NODE, found.config)) is None

    def test_of_many_only_a_few_are_considered(self):
        names = [ModelId(f"m{number:02}") for number in range(30)]
        w = world(*(model(name) for name in names))
        found = context(w, *(curve(name, {20: 1.0}) for name in names))
        assert len(self.policy.candidates(found, w.on_node(NODE))) == 16


class TestSwap:
    policy = ExpectedLoss()

    def swapped(self, found, name=C, **fields):
        w = found.world
        candidates = {c.model: c for c in self.policy.candidates(found, w.on_node(NODE))}
        idle = tuple(s for s in w.on_node(NODE) if s.residency is HOT)
        return self.policy.swap(
            found, candidates[name], idle, room(w, NODE, found.config, **fields)
        )

    def test_where_there_is_room_nothing_goes(self):
        w = world(model(A, HOT), model(C))
        swap = self.swapped(context(w, curve(A, {20: 0.1}), curve(C, {20: 2.0})))
        assert (swap.victims, swap.must_beat) == ((), FIRST_PRICE)
        assert swap.surplus_per_s == pytest.approx((-math.expm1(-2.0) - FIRST_PRICE) / 8)

    def test_it_must_beat_its_victims_loss_with_a_margin_and_the_price(self):
        w = world(model(A, HOT), model(B, HOT, mb=20), model(C))
        state = PlannerState(prefetch_price=0.2, priced_at_s=100.0)
        curves = curve(A, {20: 0.1}), curve(B, {20: 1.0}), curve(C, {20: 2.0})
        swap = self.swapped(context(w, *curves, state=state))
        assert [v.model for v in swap.victims] == [A]
        assert swap.must_beat == pytest.approx(1.5 * -math.expm1(-0.1) + 0.2)
        likely = curve(A, {45: 1.0}), curve(B, {20: 2.0}), curve(C, {20: 2.0})
        assert self.swapped(context(w, *likely)) is None

    def test_a_victims_use_during_the_load_counts(self):
        # 50 s ahead lies past the horizon of 45 s, within that and the load of 8 s
        w = world(model(A, HOT, mb=30), model(C))
        found = context(w, curve(A, {60: 9.0}), curve(C, {20: 2.0}))
        assert self.swapped(found) is None

    def test_it_waits_while_its_victim_is_likelier_to_be_used_than_it_to_be_late(self):
        # c is due in 45 s at the earliest; a may be used within the 5 s to the next look
        w = world(model(A, HOT, mb=30), model(C))
        curves = curve(A, {4: 0.2}), curve(C, {60: 9.0})
        assert self.swapped(context(w, *curves)) is None
        at_once = context(w, *curves, cfg=config(just_in_time=False))
        assert [v.model for v in self.swapped(at_once).victims] == [A]

    def test_what_nobody_will_use_soon_goes_at_once(self):
        w = world(model(A, HOT, mb=30), model(C))
        found = context(w, curve(A, {1300: 3.0}), curve(C, {60: 9.0}))
        assert [v.model for v in self.swapped(found).victims] == [A]

    def test_none_where_all_idle_ones_do_not_do_or_no_curve_tells_of_them(self):
        w = world(model(A, HOT), model(B, HOT, mb=20, in_flight=1), model(C, mb=25))
        found = context(w, curve(A, {1300: 0.1}), curve(C, {20: 2.0}))
        assert (
            self.policy.swap(
                found,
                Candidate(model=C, gain=0.9, load_s=8.0),
                (w.models[A],),
                room(w, NODE, found.config),
            )
            is None
        )
        blind = context(world(model(A, HOT, mb=30), model(C)), curve(C, {20: 2.0}))
        assert self.swapped(blind) is None

    def test_where_no_curve_tells_of_a_victim_it_does_not_wait(self):
        # a was not used for days and nobody knows more: the chance of the next 5 s is nil
        w = world(model(A, HOT, mb=10, used_s=-1e6), model(B, HOT, mb=20), model(C, mb=10))
        curves = curve(B, {20: 3.0}), curve(C, {60: 9.0})
        assert [v.model for v in self.swapped(context(w, *curves)).victims] == [A]

    def test_one_by_one_takes_more_than_a_set(self):
        # a is least per byte but too small; with b it is not needed
        w = world(model(A, HOT, mb=10), model(B, HOT, mb=20), model(C, mb=20))
        curves = curve(A, {20: 0.01}), curve(B, {20: 0.04}), curve(C, {20: 3.0})
        assert [v.model for v in self.swapped(context(w, *curves)).victims] == [B]
        single = context(w, *curves, cfg=config(whole_sets=False))
        assert [v.model for v in self.swapped(single).victims] == [A, B]

    def test_a_limit_of_models_is_kept_too(self):
        w = world(model(A, HOT), model(C))
        found = context(w, curve(A, {1300: 0.1}), curve(C, {20: 2.0}))
        assert [v.model for v in self.swapped(found, model_limit=1).victims] == [A]


class TestPrice:
    def learned(self, used, wasted, *, state=None, now_s=100.0):
        tally = PrefetchTally(started=used + wasted, used=used, wasted=wasted)
        w = world(model(A), prefetches=tally, now_s=now_s)
        return ExpectedLoss().learn(context(w, state=state))

    def test_it_starts_at_its_first_value_and_fades_by_half_in_its_half_life(self):
        assert faded_price(PlannerState(), 100.0) == FIRST_PRICE
        priced = PlannerState(prefetch_price=0.8, priced_at_s=100.0)
        assert faded_price(priced, 100.0) == 0.8
        assert faded_price(priced, 100.0 + PRICE_HALF_LIFE_S) == pytest.approx(0.4)
        assert faded_price(priced, 50.0) == 0.8

    def test_nothing_new_teaches_nothing(self):
        state = PlannerState(settled_used=3, settled_wasted=1)
        assert self.learned(3, 1, state=state) is state

    def test_a_wasted_one_raises_it_and_a_used_one_lowers_it(self):
        raised = self.learned(0, 1)
        assert raised.prefetch_price == pytest.approx(FIRST_PRICE + PRICE_STEP * 0.7)
        assert (raised.settled_used, raised.settled_wasted, raised.priced_at_s) == (0, 1, 100.0)
        lowered = self.learned(1, 1, state=raised)
        assert lowered.prefetch_price == pytest.approx(raised.prefetch_price - PRICE_STEP * 0.3)

    def test_at_the_target_share_of_waste_it_rests(self):
        assert self.learned(7, 3).prefetch_price == pytest.approx(FIRST_PRICE)

    def test_it_stays_within_its_bounds(self):
        assert self.learned(0, 1000).prefetch_price == MAX_PRICE
        assert self.learned(1000, 0).prefetch_price == 0.0


class TestWaves:
    def learned(self, arrivals, now_s, state=None):
        w = world(model(A, HOT, arrivals=arrivals), now_s=now_s)
        return ExpectedLoss().learn(context(w, state=state))

    def test_what_comes_within_a_load_time_of_the_first_is_one_wave(self):
        first = self.learned(1, 100.0)
        assert first.waves == {A: Wave(begun_s=100.0, requests=1)}
        more = self.learned(3, 108.0, first)
        assert more.waves == {A: Wave(begun_s=100.0, requests=3)}
        assert self.learned(3, 109.0, more) is more

    def test_a_wave_that_ended_moves_the_usual_one_by_a_fifth(self):
        begun = PlannerState(
            seen_arrivals={A: 6}, waves={A: Wave(begun_s=100.0, requests=6, usual=1.0)}
        )
        after = self.learned(7, 109.0, begun)
        assert after.waves == {A: Wave(begun_s=109.0, requests=1, usual=2.0)}

    def test_what_came_before_it_began_to_look_is_no_wave(self):
        state = self.learned(500, 100.0)
        assert (state.waves, state.seen_arrivals) == ({}, {A: 500})
        assert self.learned(502, 109.0, state).waves == {A: Wave(begun_s=109.0, requests=2)}

    def test_a_count_that_begins_anew_is_taken_as_it_is(self):
        state = self.learned(2, 100.0, PlannerState(seen_arrivals={A: 9}))
        assert (state.waves, state.seen_arrivals) == ({}, {A: 2})
