"""Whatever events come, in whatever order and however often, the world stays possible."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contracts.config import PlannerConfig
from contracts.events import IntentKind, IntentSignal, LoadCause, NodeLost
from contracts.ids import GatewayId, ModelId, RequestId
from contracts.messages import GatewayBeat, LoadWanted
from contracts.plan import PlannerState
from contracts.world import Residency, WorldSnapshot
from controller.beats import drop_gateway, fold_beat
from controller.catalogue import with_catalogue, with_load_request, with_unload_request
from controller.fold import commit, fold
from controller.lifecycle import Step, follow
from controller.open_requests import fold_wanted
from controller.planner import plan
from tests.worlds import (
    NODE,
    A,
    B,
    cancelled,
    completed,
    dispatched,
    failed,
    given_up,
    load_failed,
    load_started,
    loaded,
    model,
    observed,
    received,
    stamp,
    unloaded,
    world,
)

UNLISTED = ModelId("x")
names = st.sampled_from([A, B, UNLISTED])
times = st.integers(95, 110).map(float)
ids = st.sampled_from(["r1", "r2", "r3"])
gateways = st.sampled_from(["gw", "gw2"])
counts = st.dictionaries(names, st.integers(1, 2), max_size=2)
rests = st.none() | st.sampled_from([0.0, 7.0])

events = st.one_of(
    st.builds(received, ids, names, times, gateways),
    st.builds(received, ids, st.none(), times),
    st.builds(dispatched, ids, names, times, cold=st.booleans()),
    st.builds(completed, ids, names, times),
    st.builds(failed, ids, names, times),
    st.builds(cancelled, ids, names, times),
    st.builds(load_started, names, times, st.sampled_from(LoadCause)),
    st.builds(loaded, names, times, load_s=rests, mb=st.none() | st.just(5)),
    st.builds(load_failed, names, times, retry_after_s=rests),
    st.builds(unloaded, names, times),
    st.builds(
        lambda at_s, resident, used_mb: observed(at_s, *resident, used_mb=used_mb),
        times | st.just(900.0),
        st.sets(names),
        st.none() | st.just(12),
    ),
    st.builds(lambda at_s: NodeLost(**stamp(at_s), node=NODE, error="gone"), times),
    st.builds(given_up, st.sampled_from(["load", "unload", "other"]), names, times),
    st.builds(
        lambda at_s: IntentSignal(
            **stamp(at_s), client="c", kind=IntentKind.MODELS_LISTED, model=None
        ),
        times,
    ),
)
beats = st.builds(
    GatewayBeat,
    gateway=gateways.map(GatewayId),
    at_s=times,
    in_flight=counts,
    waiting=counts,
    leaving=st.booleans(),
)
wishes = st.builds(
    lambda gateway, request, name, at_s: LoadWanted(
        gateway=GatewayId(gateway),
        request_id=RequestId(request),
        model=name,
        at_s=at_s,
        deadline_s=at_s + 60.0,
    ),
    gateways,
    ids,
    names,
    times,
)
settings_ = st.one_of(
    st.tuples(st.just("listed"), st.sets(names)),
    st.tuples(st.just("gone"), gateways),
    st.tuples(st.just("planned"), st.none()),
    st.tuples(st.just("load"), names),
    st.tuples(st.just("unload"), names),
)
steps = st.lists(events | beats | wishes | settings_, max_size=25)


def after(w: WorldSnapshot, step: Any) -> WorldSnapshot:
    match step:
        case GatewayBeat():
            return fold_beat(w, step)
        case LoadWanted():
            return fold_wanted(w, step)
        case ("listed", models):
            return with_catalogue(w, NODE, models, {}, {})
        case ("gone", gateway):
            return drop_gateway(w, gateway, w.taken_at_s)
        case ("planned", _):
            return _planned(w)
        case ("load", name):
            return with_load_request(w, name)
        case ("unload", name):
            return with_unload_request(w, name)
        case _:
            return fold(w, step)


def _planned(before: WorldSnapshot) -> WorldSnapshot:
    config = PlannerConfig(policy="lru", reserve_ratio=0.0)
    result = plan(world=before, forecasts={}, state=PlannerState(), config=config)
    return commit(before, result.plan)


def possible(w: WorldSnapshot) -> None:
    """What must hold of any world."""
    waiting = Counter(r.model for r in w.requests.values() if r.dispatched_at_s is None)
    flying = Counter(r.model for r in w.requests.values() if r.dispatched_at_s is not None)
    assert set(waiting) | set(flying) <= set(w.models)
    for name, status in w.models.items():
        assert status.model == name
        assert status.waiting == waiting[name] >= 0
        assert status.in_flight == flying[name] >= 0
        assert (status.wanted_since_s is None) == (status.waiting == 0)
        assert status.cooldown_until_s is None or status.residency is not Residency.HOT
        assert status.used_since_load is False or status.residency is not Residency.COLD
    tally = w.prefetches
    assert min(tally.started, tally.used, tally.wasted) >= 0
    assert tally.used + tally.wasted <= tally.started


def one_step_of_the_table(before: WorldSnapshot, after: WorldSnapshot) -> None:
    for name, status in after.models.items():
        was = before.models[name].residency if name in before.models else Residency.COLD
        reachable = {was} | {follow(was, step) for step in Step}
        assert status.residency in reachable


@given(steps)
def test_any_sequence_leaves_a_possible_world(happened):
    w = world(model(A, Residency.HOT), model(B), mb=15)
    for step in happened:
        before, w = w, after(w, step)
        possible(w)
        one_step_of_the_table(before, w)
        assert w.taken_at_s >= before.taken_at_s
        assert w.generation >= before.generation


@given(steps)
def test_the_same_events_give_the_same_world(happened):
    start = world(model(A, Residency.HOT), model(B), mb=15)
    assert functools.reduce(after, happened, start) == functools.reduce(after, happened, start)


@given(st.lists(events, max_size=20))
def test_an_operators_wish_ends_once_it_is_met(happened):
    w = with_load_request(world(model(A), model(B)), A)
    for event in happened:
        w = fold(w, event)
        if w.models[A].residency is Residency.HOT:
            assert A not in w.operator_loads
    w = with_unload_request(w, A)
    for event in happened:
        w = fold(w, event)
        if w.models[A].residency is Residency.COLD:
            assert A not in w.operator_unloads
