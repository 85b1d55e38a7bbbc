"""A policy in a ghost of the world: what it would have made of the live requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.ids import ModelId
from contracts.world import Residency, Sla
from controller import rehearsal
from controller.rehearsal import BLOCK_S, Rehearsal
from tests.worlds import A, B, C, config, model, world

HOT = Residency.HOT


def ghost(policy="lru", *models, mb=10, **fields):
    return Rehearsal(policy, world(*models, mb=mb, now_s=100.0, **fields), config())


def play(one, *requests, service_s=1.0, forecasts=None):
    for name, at_s in requests:
        one.arrived(name, at_s, service_s=service_s, forecasts=forecasts or {})
    one.advance(requests[-1][1] + 1000.0, forecasts or {})
    return one.figures()


def counts(figures):
    return (figures.arrivals, figures.cold, figures.late)


def test_a_cold_model_is_loaded_once_and_then_serves():
    one = ghost("lru", model(A))
    assert counts(play(one, (A, 100.0), (A, 101.0), (A, 120.0))) == (3, 2, 2)
    assert (one.loads, one.prefetches) == (1, 0)


def test_what_is_hot_when_it_begins_is_hot_here_too():
    assert counts(play(ghost("lru", model(A, HOT)), (A, 100.0))) == (1, 0, 0)


def test_a_wait_within_the_target_is_cold_and_not_late():
    slas = {A: Sla(model=A, target_s=10.0)}
    assert counts(play(ghost("lru", model(A), slas=slas), (A, 100.0))) == (1, 1, 0)


def test_two_that_do_not_fit_evict_each_other():
    one = ghost("lru", model(A), model(B))
    requests = [((A, B)[n % 2], 100.0 + 50.0 * n) for n in range(6)]
    assert counts(play(one, *requests)) == (6, 6, 6)
    assert one.loads == 6


def test_who_waits_for_a_busy_model_waits_for_its_end():
    one = ghost("lru", model(A), model(B))
    one.arrived(A, 100.0, service_s=100.0, forecasts={})
    one.arrived(B, 120.0, service_s=1.0, forecasts={})
    one.advance(207.0, {})
    assert one.figures().arrivals == 1
    one.advance(300.0, {})
    assert one.figures().arrivals == 2


def test_policies_differ_on_the_same_requests():
    models = [model(A, HOT), model(B, HOT), model(C)]
    requests = [(A, 100.0 + n) for n in range(5)] + [(B, 106.0), (C, 120.0), (A, 140.0)]
    by_lru = play(ghost("lru", *models, mb=20), *requests)
    by_gdsf = play(ghost("gdsf", *models, mb=20), *requests)
    # lru lets a go for c, gdsf the one that is seldom asked for
    assert (by_lru.cold, by_gdsf.cold) == (2, 1)


def test_time_never_goes_back():
    one = ghost("lru", model(A, HOT))
    one.arrived(A, 150.0, service_s=1.0, forecasts={})
    one.arrived(A, 120.0, service_s=1.0, forecasts={})
    one.advance(90.0, {})
    assert counts(one.figures()) == (2, 0, 0)


def test_what_nobody_lists_is_left_out_and_counted():
    one = ghost("lru", model(A))
    assert counts(play(one, (ModelId("x"), 100.0))) == (0, 0, 0)
    assert one.left_out == 1


def test_open_requests_are_bounded(monkeypatch):
    monkeypatch.setattr(rehearsal, "MAX_OPEN", 2)
    one = ghost("lru", model(A))
    play(one, (A, 100.0), (A, 100.5), (A, 101.0), (A, 300.0))
    assert (one.figures().arrivals, one.left_out) == (3, 1)


def test_blocks_of_time_are_bounded(monkeypatch):
    monkeypatch.setattr(rehearsal, "MAX_BLOCKS", 2)
    one = ghost("lru", model(A, HOT))
    play(one, *[(A, 100.0 + BLOCK_S * n) for n in range(4)])
    assert list(one.blocks) == [2, 3]


def test_one_that_fell_behind_jumps(monkeypatch):
    monkeypatch.setattr(rehearsal, "MAX_STEPS_AT_ONCE", 3)
    one = ghost("lru", model(A))
    one.arrived(A, 100.0, service_s=1.0, forecasts={})
    one.advance(1e6, {})
    one.arrived(A, 1e6 + 1.0, service_s=1.0, forecasts={})
    one.advance(2e6, {})
    one.advance(3e6, {})
    assert one.figures().arrivals == 2


def test_new_models_and_new_sizes_are_taken_over():
    one = ghost("lru", model(A))
    live = world(model(A, HOT, mb=5, load_s=3.0), model(B, HOT), mb=30, now_s=200.0)
    live = replace(live, slas={A: Sla(model=A, target_s=9.0)})
    one.refresh(live)
    # neither is hot here, whatever it is in earnest
    figures = play(one, (A, 210.0), (B, 230.0))
    assert counts(figures) == (2, 2, 1)


@pytest.mark.parametrize("policy", ["headstart", "idle-timeout", "localai-lru", "weighted-score"])
def test_every_policy_can_be_rehearsed(policy):
    one = ghost(policy, model(A), model(B), mb=20)
    assert counts(play(one, (A, 100.0), (B, 101.0), (A, 130.0), (B, 131.0))) == (4, 2, 2)
