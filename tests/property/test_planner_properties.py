"""Whatever the world and the forecasts are, a plan keeps the promises."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from contracts.config import PlannerConfig
from contracts.events import LoadCause
from contracts.forecasts import ForecastStatus, ModelForecast
from contracts.ids import ModelId
from contracts.plan import LoadModel, Outcome, PlannerState, PlanResult, UnloadModel
from contracts.reasons import Reason, explain
from contracts.world import (
    OCCUPIES_MEMORY,
    Mode,
    PrefetchTally,
    Residency,
    Sla,
)
from controller.fold import commit, fold
from controller.memory import usable_bytes
from controller.planner import plan
from controller.policies.base import LOOK_S
from controller.policies.registry import POLICIES
from tests.worlds import NODE, curve, model, unloaded, world

NOW_S = 1000.0
NAMES = [ModelId(f"m{number}") for number in range(6)]

moments = st.floats(0.0, NOW_S)
maybe_later = st.none() | st.floats(NOW_S - 20.0, NOW_S + 20.0)


@st.composite
def statuses(draw, name):
    residency = draw(st.sampled_from(Residency))
    holds = residency in OCCUPIES_MEMORY
    waiting = draw(st.integers(0, 2))
    return model(
        name,
        residency,
        mb=draw(st.none() | st.integers(1, 12)),
        since_s=draw(moments),
        used_s=draw(st.none() | moments),
        load_s=draw(st.none() | st.floats(0.1, 60.0)),
        in_flight=draw(st.integers(0, 2)) if holds else 0,
        waiting=waiting,
        wanted_since_s=draw(moments) if waiting else None,
        arrivals=draw(st.integers(0, 9)),
        pinned=draw(st.booleans()) and draw(st.booleans()),
        cooldown_until_s=draw(maybe_later) if residency is not Residency.HOT else None,
        spared_until_s=draw(maybe_later),
        preemptible=draw(st.integers(0, 2)) if holds else 0,
        load_cause=draw(st.none() | st.sampled_from(LoadCause)),
    )


sizes_mb = st.integers(5, 40)
any_size_mb = st.none() | sizes_mb
limits = st.integers(1, 4)
any_limit = st.none() | limits
any_policy = tuple(sorted(POLICIES))


@st.composite
def worlds(draw, mb, limit, mode):
    chosen = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=6))
    some = st.frozensets(st.sampled_from(NAMES), max_size=2)
    return world(
        *(draw(statuses(name)) for name in chosen),
        mb=draw(mb),
        now_s=NOW_S,
        mode=mode,
        model_limit=draw(limit),
        operator_loads=draw(some),
        operator_unloads=draw(some),
        preloads=draw(some),
        slas={name: Sla(model=name, target_s=1.0, weight=3.0) for name in draw(some)},
        prefetches=PrefetchTally(
            started=20, used=draw(st.integers(0, 10)), wasted=draw(st.integers(0, 10))
        ),
    )


@st.composite
def forecasts(draw, name):
    due_s, hazard = draw(st.sampled_from([1.0, 8.0, 20.0, 60.0])), draw(st.floats(0.0, 4.0))
    made_s = NOW_S - draw(st.sampled_from([0.0, 5.0, 100.0]))
    expires_s = NOW_S + draw(st.sampled_from([0.0, 30.0]))
    status = draw(st.sampled_from(ForecastStatus))
    if draw(st.booleans()):
        return curve(name, {due_s: hazard}, made_s=made_s, expires_s=expires_s, status=status)
    return ModelForecast(model=name, next_use=None, signals=())


@st.composite
def situations(draw, *, mb=any_size_mb, limit=any_limit, policies=any_policy):
    """A world, what is expected, what is remembered, and how it is configured."""
    expected = [draw(forecasts(n)) for n in draw(st.sets(st.sampled_from(NAMES), max_size=4))]
    state = PlannerState(
        sequence=draw(st.integers(0, 5)),
        prefetch_price=draw(st.sampled_from([0.0, 0.1, 5.0])),
        gdsf_value={n: draw(st.floats(0.0, 5.0)) for n in draw(st.sets(st.sampled_from(NAMES)))},
    )
    configured = PlannerConfig(
        policy=draw(st.sampled_from(policies)),
        parallel_loads=draw(st.integers(1, 3)),
        prefetch=draw(st.booleans()),
        min_residency_s=draw(st.sampled_from([0.0, 5.0])),
        reserve_ratio=draw(st.sampled_from([0.0, 0.2])),
        turn_s=draw(st.sampled_from([None, 0.0, 15.0])),
        idle_timeout_s=draw(st.sampled_from([10.0, 900.0])),
    )
    mode = draw(st.sampled_from(Mode))
    return draw(worlds(mb, limit, mode)), {f.model: f for f in expected}, state, configured


def decide(situation):
    w, expected, state, configured = situation
    return plan(world=w, forecasts=expected, state=state, config=configured)


def loads(result: PlanResult) -> list[LoadModel]:
    return [action for action in result.plan.actions if isinstance(action, LoadModel)]


def unloads(result: PlanResult) -> list[UnloadModel]:
    return [action for action in result.plan.actions if isinstance(action, UnloadModel)]


def models(result: PlanResult) -> set[ModelId]:
    return {a.model for a in loads(result)} | {a.model for a in unloads(result)}


@given(situations())
def test_a_victim_is_hot_unpinned_not_asked_for_and_idle_or_at_the_end_of_its_turn(situation):
    w = situation[0]
    for action in unloads(decide(situation)):
        status = w.models[action.model]
        assert status.residency is Residency.HOT
        # In its turn a busy one is asked to go, and goes when its last request has ended.
        assert action.drain_s is not None or (status.in_flight, status.waiting) == (0, 0)
        assert not action.preempt or status.in_flight <= status.preemptible
        assert not status.pinned
        assert status.spared_until_s is None or status.spared_until_s <= NOW_S
        assert action.model not in w.operator_loads or action.model in w.operator_unloads


@given(situations())
def test_only_absent_models_are_loaded_once_and_none_that_cools_down(situation):
    w = situation[0]
    loaded = loads(decide(situation))
    assert len({action.model for action in loaded}) == len(loaded)
    for action in loaded:
        status = w.models[action.model]
        assert status.residency in (Residency.COLD, Residency.FAILED)
        if action.cause is not LoadCause.PREFETCH:
            assert status.cooldown_until_s is None or status.cooldown_until_s <= NOW_S


@given(situations())
def test_loads_beside_those_that_run_are_no_more_than_may(situation):
    w, _, _, configured = situation
    running = sum(status.residency is Residency.LOADING for status in w.models.values())
    ordered = len(loads(decide(situation)))
    assert ordered == 0 or running + ordered <= configured.parallel_loads


@given(situations(mb=sizes_mb))
def test_what_is_ordered_fits(situation):
    w, _, _, configured = situation
    usable = usable_bytes(w.nodes[NODE], configured)
    before = list(w.models.values())
    assume(sum(status.occupied_bytes for status in before) <= usable)
    result = decide(situation)
    victims = {action.model for action in unloads(result)}
    coming = [w.models[action.model] for action in loads(result)]
    staying = [status for status in before if status.model not in victims]
    needed = sum(status.footprint_bytes or 0 for status in coming)
    assert sum(status.occupied_bytes for status in staying) + needed <= usable


@given(situations(limit=limits))
def test_no_load_takes_the_residents_over_localais_limit(situation):
    w = situation[0]
    limit = w.nodes[NODE].model_limit
    result = decide(situation)
    residents = sum(status.residency in OCCUPIES_MEMORY for status in w.models.values())
    if loads(result):
        assert residents - len(unloads(result)) + len(loads(result)) <= limit


@given(situations())
def test_a_load_waits_for_victims_of_its_own_plan_and_every_eviction_is_for_one(situation):
    result = decide(situation)
    gone = [action.model for action in unloads(result)]
    assert len(gone) == len(set(gone))
    after = [name for action in loads(result) for name in action.after]
    assert len(after) == len(set(after))
    assert set(after) == {a.model for a in unloads(result) if a.cause.value == "evicted"}


@given(situations(mb=sizes_mb, limit=st.none(), policies=("headstart", "lru", "gdsf")))
def test_not_one_victim_could_have_stayed(situation):
    w, _, _, configured = situation
    result = decide(situation)
    usable = usable_bytes(w.nodes[NODE], configured)
    held = sum(status.occupied_bytes for status in w.models.values())
    for action in loads(result):
        freed = [w.models[name].occupied_bytes for name in action.after]
        held += w.models[action.model].footprint_bytes or 0
        for one in freed:
            assert held - (sum(freed) - one) > usable
        held -= sum(freed)


@given(situations())
def test_planning_what_was_ordered_orders_nothing_more_for_the_same_models(situation):
    w, expected, _, configured = situation
    first = decide(situation)
    after = commit(w, first.plan)
    again = decide((after, expected, first.state, configured))
    assert not models(first) & models(again)


@given(situations())
def test_it_comes_to_rest(situation):
    """Ordered and carried out again and again, plans end: nothing is swapped to and fro."""
    w, expected, state, configured = situation
    for _ in range(2 * len(w.models) + 2):
        result = decide((w, expected, state, configured))
        state = result.state
        if not result.plan.actions:
            break
        w = commit(w, result.plan)
        for action in unloads(result):
            w = fold(w, unloaded(action.model, NOW_S))
        w = replace(w, operator_unloads=frozenset())
    else:
        raise AssertionError("it never comes to rest")


@given(situations())
def test_the_same_arguments_give_the_same_plan(situation):
    assert decide(situation) == decide(situation)
    w, expected, state, configured = situation
    turned = replace(w, models=dict(reversed(w.models.items())))
    assert decide((turned, expected, state, configured)).plan == decide(situation).plan


@given(situations())
def test_every_decision_has_a_reason_with_a_sentence_and_a_name(situation):
    result = decide(situation)
    for decision in result.plan.decisions:
        assert decision.reason in Reason
        assert explain(decision.reason)
        assert decision.decision_id
        assert decision.policy == situation[3].policy
    ids = [d.decision_id for d in result.plan.decisions]
    ids += [action.action_id for action in loads(result)]
    ids += [action.action_id for action in unloads(result)]
    assert len(ids) == len(set(ids))


@given(situations())
def test_every_ordered_action_is_said_and_nothing_is_said_twice_while_it_holds(situation):
    w, expected, _, configured = situation
    result = decide(situation)
    changed = {d.subject for d in result.plan.decisions if d.outcome is Outcome.CHANGE}
    assert changed == models(result)
    again = decide((w, expected, result.state, configured))
    held = [d for d in again.plan.decisions if d.outcome is not Outcome.CHANGE]
    assert held == []


@given(situations())
def test_watching_decides_the_same_as_acting_and_marks_it(situation):
    w, expected, state, configured = situation
    acting = decide((replace(w, mode=Mode.ACTIVE), expected, state, configured))
    watching = decide((replace(w, mode=Mode.OBSERVE), expected, state, configured))
    assert watching.plan.actions == acting.plan.actions
    assert all(d.evidence[-1] == ("mode", "observe") for d in watching.plan.decisions)
    assert not any(("mode", "observe") in d.evidence for d in acting.plan.decisions)


@given(situations())
def test_the_next_look_is_soon_and_never_in_the_past(situation):
    result = decide(situation)
    assert NOW_S < result.next_tick_at_s <= NOW_S + LOOK_S


@given(situations(policies=("headstart", "lru", "localai-lru", "gdsf")))
def test_a_forecast_alone_unloads_nothing_that_no_load_needs(situation):
    quiet = replace(situation[0], operator_unloads=frozenset())
    result = decide((quiet, *situation[1:]))
    assert {a.model for a in unloads(result)} == {n for a in loads(result) for n in a.after}
