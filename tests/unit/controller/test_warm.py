"""The warm tier in the plan: whose weights are read ahead. A model's files are 10 MB."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.config import WarmConfig
from contracts.events import LoadCause
from contracts.plan import Outcome, PlannerState, WarmFile
from contracts.reasons import Reason
from contracts.world import (
    WARM_RATIO,
    HostMemory,
    Mode,
    Residency,
    ScheduledUse,
    Tier,
    Warmth,
    tier_of,
)
from controller.fold import commit
from controller.planner import plan
from controller.warm import TRUST_S
from tests.worlds import MIB, NODE, A, B, C, config, curve, model, world

COLD, HOT = Residency.COLD, Residency.HOT
FAILED = Residency.FAILED
WARM = WarmConfig(budget_bytes=100 * MIB, keep_free_bytes=0)
BIG = HostMemory(total_bytes=1000 * MIB, available_bytes=900 * MIB)


def on_disk(*names, cached: int | None = 0, mb: int = 10, **fields: object):
    size = None if cached is None else cached * MIB
    return {
        name: Warmth(model=name, weights_bytes=mb * MIB, cached_bytes=size, **fields)  # type: ignore[arg-type]  # the test's own
        for name in names
    }


def house(*models, warmth=None, host=BIG, **fields):
    names = [status.model for status in models]
    hosts = {} if host is None else {NODE: host}
    told = on_disk(*names) if warmth is None else warmth
    return world(*models, warmth=told, hosts=hosts, **fields)


def decide(w, *forecasts, state=None, warm: WarmConfig | None = WARM, **fields):
    return plan(
        world=w,
        forecasts={forecast.model: forecast for forecast in forecasts},
        state=state or PlannerState(),
        config=config("headstart", prefetch=False, warm=warm, **fields),
    )


def warmed(result):
    return [
        (action.model, action.instead_of)
        for action in result.plan.actions
        if isinstance(action, WarmFile)
    ]


LIKELY, RARE, NEVER = (
    lambda name: curve(name, {60.0: 3.0}),
    lambda name: curve(name, {60.0: 0.1}),
    lambda name: curve(name, {60.0: 0.001}),
)


def test_the_likeliest_cold_model_is_read_ahead_one_at_a_time():
    result = decide(house(model(A), model(B), model(C)), RARE(A), LIKELY(B), NEVER(C))
    assert warmed(result) == [(B, ())]
    (action,) = result.plan.actions
    assert isinstance(action, WarmFile)
    assert (action.node, action.reason) == (NODE, Reason.WARM)
    (decision,) = [d for d in result.plan.decisions if d.reason is Reason.WARM]
    assert (decision.subject, decision.outcome) == (B, Outcome.CHANGE)
    assert dict(decision.evidence) == {"value": 0.9502, "read_mb": 10}


def test_what_is_warm_already_is_left_and_the_next_is_read():
    warmth = on_disk(A, cached=10) | on_disk(B)
    assert warmed(decide(house(model(A), model(B), warmth=warmth), LIKELY(A), RARE(B))) == [(B, ())]


def test_nobody_is_read_ahead_who_is_hardly_ever_used():
    assert warmed(decide(house(model(A)), NEVER(A))) == []
    assert warmed(decide(house(model(A)))) == []
    # Without a curve: idle for 100 s, so as likely as not within the next 900 s.
    assert warmed(decide(house(model(A, used_s=0.0)))) == [(A, ())]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (model(A, FAILED), [(A, ())]),
        (model(A, HOT), []),
        (model(A, kept_out=True), []),
    ],
    ids=["failed", "resident", "unloaded by an operator"],
)
def test_whose_files_may_be_needed(status, expected):
    assert warmed(decide(house(status), LIKELY(A))) == expected


def test_nothing_is_read_while_a_load_runs_or_another_is_read():
    loading = house(model(A), model(B, Residency.LOADING))
    assert warmed(decide(loading, LIKELY(A))) == []
    wanted = house(model(A), model(B, waiting=1, wanted_since_s=99.0))
    assert warmed(decide(wanted, LIKELY(A))) == []
    reading = house(model(A), model(B), warmth=on_disk(A) | on_disk(B, is_warming=True))
    assert warmed(decide(reading, LIKELY(A))) == []


@pytest.mark.parametrize(
    ("host", "warm"),
    [(None, WARM), (BIG, None)],
    ids=["nobody tells of the host", "it is off"],
)
def test_nothing_is_read_where(host, warm):
    assert warmed(decide(house(model(A), host=host), LIKELY(A), warm=warm)) == []


def test_files_that_cannot_be_found_or_are_empty_are_nobodys():
    assert warmed(decide(house(model(A), warmth={}), LIKELY(A))) == []
    assert warmed(decide(house(model(A), warmth=on_disk(A, mb=0)), LIKELY(A))) == []


# optimization.cache_size_gb


def test_all_that_is_kept_stays_within_the_budget():
    budget = replace(WARM, budget_bytes=15 * MIB)
    warmth = on_disk(A, cached=10) | on_disk(B)
    w = house(model(A), model(B), warmth=warmth)
    # A is as likely as B: nothing is swapped for nothing.
    assert warmed(decide(w, LIKELY(A), LIKELY(B), warm=budget)) == []
    assert warmed(decide(w, RARE(A), LIKELY(B), warm=budget)) == [(B, (A,))]
    result = decide(w, RARE(A), LIKELY(B), warm=budget)
    assert ("instead_of", "a") in result.plan.decisions[-1].evidence


def test_a_model_that_is_larger_than_the_budget_is_passed_over_for_the_next():
    budget = replace(WARM, budget_bytes=15 * MIB)
    warmth = on_disk(A, mb=20) | on_disk(B)
    w = house(model(A), model(B), warmth=warmth)
    assert warmed(decide(w, LIKELY(A), RARE(B), warm=budget)) == [(B, ())]


def test_without_a_budget_half_of_the_hosts_memory_is_one():
    host = HostMemory(total_bytes=30 * MIB, available_bytes=30 * MIB)
    unset = replace(WARM, budget_bytes=None)
    fits = house(model(A), warmth=on_disk(A, mb=15), host=host)
    assert warmed(decide(fits, LIKELY(A), warm=unset)) == [(A, ())]
    too_big = house(model(A), warmth=on_disk(A, mb=16), host=host)
    assert warmed(decide(too_big, LIKELY(A), warm=unset)) == []


# memory_optimization.swap_threshold_mb


def test_free_memory_never_goes_below_the_threshold():
    host = HostMemory(total_bytes=1000 * MIB, available_bytes=30 * MIB)
    w = house(model(A), host=host)
    assert warmed(decide(w, LIKELY(A), warm=replace(WARM, keep_free_bytes=20 * MIB))) == [(A, ())]
    assert warmed(decide(w, LIKELY(A), warm=replace(WARM, keep_free_bytes=21 * MIB))) == []
    # What is cached of others counts as available, and is not free all the same.
    both = house(model(A), model(B), warmth=on_disk(A) | on_disk(B, cached=10), host=host)
    told = LIKELY(A), LIKELY(B)
    assert warmed(decide(both, *told, warm=replace(WARM, keep_free_bytes=11 * MIB))) == []
    assert warmed(decide(both, *told, warm=replace(WARM, keep_free_bytes=10 * MIB))) == [(A, ())]


# memory_optimization.model_caching_strategy


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("adaptive", A),  # likeliest to be loaded
        ("lru", B),  # used last
        ("lfu", C),  # used most
        ("fifo", B),  # unloaded last
    ],
)
def test_each_strategy_keeps_another_models_files(strategy, expected):
    w = house(
        model(A, used_s=10.0, arrivals=2, since_s=20.0, load_cause=LoadCause.DEMAND),
        model(B, used_s=90.0, arrivals=3, since_s=95.0, load_cause=LoadCause.DEMAND),
        model(C, used_s=50.0, arrivals=9, since_s=60.0, load_cause=LoadCause.DEMAND),
    )
    told = LIKELY(A), RARE(B), RARE(C)
    assert warmed(decide(w, *told, warm=replace(WARM, strategy=strategy))) == [(expected, ())]


@pytest.mark.parametrize("strategy", ["lru", "lfu", "fifo"])
def test_a_model_that_was_never_used_is_nothing_to_those_that_look_back(strategy):
    assert warmed(decide(house(model(A)), LIKELY(A), warm=replace(WARM, strategy=strategy))) == []


# What is sure to be loaded


@pytest.mark.parametrize(
    "fields",
    [
        {"scheduled": {A: ScheduledUse(starts_at_s=900.0, ends_at_s=2000.0)}},
        {"scheduled": {A: ScheduledUse(starts_at_s=50.0, ends_at_s=2000.0)}},
    ],
    ids=["a schedule comes", "a schedule runs"],
)
def test_what_a_schedule_wants_is_read_ahead(fields):
    # Another model is in the way, and is used: so it is not loaded, but its files are read.
    w = house(model(A), model(B, HOT, mb=30, used_s=99.0), warmth=on_disk(A), **fields)
    assert warmed(decide(w)) == [(A, ())]


def test_a_schedule_that_is_far_away_changes_nothing():
    later = {A: ScheduledUse(starts_at_s=1001.0, ends_at_s=2000.0)}
    assert warmed(decide(house(model(A), scheduled=later))) == []


@pytest.mark.parametrize("fields", [{"preloads": frozenset({A})}, {}], ids=["preload", "pinned"])
def test_what_is_to_be_there_and_finds_no_room_is_read_ahead(fields):
    status = model(A, pinned=not fields)
    w = house(status, model(B, HOT, mb=30, in_flight=1), warmth=on_disk(A), **fields)
    assert warmed(decide(w)) == [(A, ())]


def test_what_is_waited_for_and_finds_no_room_is_read_before_all_others():
    busy = model(B, HOT, mb=30, in_flight=1)
    w = house(model(A, waiting=1, wanted_since_s=99.0), busy, model(C))
    assert warmed(decide(w, LIKELY(C))) == [(A, ())]


# Where nobody may see the cache


def test_what_was_read_ahead_is_trusted_for_an_hour_where_nobody_may_see_it():
    unseen = on_disk(A, cached=None)
    assert warmed(decide(house(model(A), warmth=unseen), LIKELY(A))) == [(A, ())]
    fresh = on_disk(A, cached=None, warmed_at_s=100.0 - TRUST_S + 1)
    assert warmed(decide(house(model(A), warmth=fresh), LIKELY(A))) == []
    old = on_disk(A, cached=None, warmed_at_s=100.0 - TRUST_S)
    assert warmed(decide(house(model(A), warmth=old), LIKELY(A))) == [(A, ())]


@pytest.mark.parametrize(
    ("residency", "cached_mb", "expected"),
    [
        (HOT, 0, Tier.HOT),
        (Residency.DRAINING, None, Tier.HOT),
        (COLD, 100, Tier.WARM),
        (COLD, 95, Tier.WARM),
        (COLD, 94, Tier.COLD),
        (COLD, 0, Tier.COLD),
        (COLD, None, Tier.UNKNOWN),
        (Residency.LOADING, 100, Tier.WARM),
    ],
)
def test_the_tier_of_a_model(residency, cached_mb, expected):
    warmth = on_disk(A, cached=cached_mb, mb=100)[A]
    assert tier_of(model(A, residency), warmth) is expected
    assert WARM_RATIO == 0.95


def test_nothing_is_known_of_a_model_whose_files_are_not_found():
    assert tier_of(model(A), None) is Tier.UNKNOWN
    assert Warmth(model=A, weights_bytes=0, cached_bytes=0).cached_ratio is None


def test_what_is_not_ordered_is_told_once():
    w = house(model(A), mode=Mode.OBSERVE)
    first = decide(w, LIKELY(A))
    assert [d.reason for d in first.plan.decisions if d.subject == A] == [Reason.WARM]
    second = decide(w, LIKELY(A), state=first.state)
    assert [d.reason for d in second.plan.decisions if d.subject == A] == []
    assert commit(w, first.plan).models == w.models
