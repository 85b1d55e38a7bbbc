"""The victim score of ``weighted-score``, with numbers that can be followed by hand."""

from __future__ import annotations

from contracts.events import PriorityClass
from contracts.plan import PlannerState
from contracts.reasons import Reason
from contracts.world import Residency, Sla
from controller.policies.base import Context
from controller.policies.weighted_score import WeightedScore
from tests.worlds import NODE, A, B, C, config, model, world

HOT = Residency.HOT


def victims(w):
    context = Context(
        now_s=w.taken_at_s,
        node=NODE,
        world=w,
        forecasts={},
        state=PlannerState(),
        config=config(),
        models=w.on_node(NODE),
    )
    return WeightedScore().victims(context, w.on_node(NODE))


def order(w):
    return [victim.model for victim in victims(w)]


def test_the_rarest_goes_first_where_all_cost_the_same():
    w = world(model(A, HOT, arrivals=9), model(B, HOT, arrivals=1), model(C, HOT, arrivals=3))
    assert order(w) == [B, C, A]


def test_what_loads_fast_goes_first_where_all_are_asked_for_as_often():
    w = world(model(A, HOT, load_s=20.0, arrivals=2), model(B, HOT, load_s=5.0, arrivals=2))
    assert order(w) == [B, A]


def test_a_lower_class_goes_first_where_all_else_is_equal():
    slas = {
        B: Sla(model=B, target_s=2.0, priority=PriorityClass.BACKGROUND),
        C: Sla(model=C, target_s=2.0, priority=PriorityClass.BATCH),
    }
    w = world(model(A, HOT), model(B, HOT), model(C, HOT), slas=slas)
    assert order(w) == [B, C, A]


def test_a_weight_makes_a_reload_dearer():
    slas = {A: Sla(model=A, target_s=2.0, weight=3.0)}
    w = world(model(A, HOT, load_s=5.0), model(B, HOT, load_s=5.0), slas=slas)
    assert order(w) == [B, A]


def test_its_parts_are_the_evidence():
    w = world(model(A, HOT, load_s=8.0, arrivals=4), model(B, HOT, load_s=4.0, arrivals=0))
    first, second = victims(w)
    assert (first.model, first.reason) == (B, Reason.HIGHEST_SCORE)
    assert first.evidence == (
        ("score", 0.5), ("priority", 0.0), ("rarity", 1.0), ("reload_cost", 0.5)
    )  # fmt: skip
    assert second.loss == -(0.25 - 1.0)


def test_nothing_idle_is_no_victim_and_no_load_time_costs_nothing():
    assert victims(world()) == ()
    assert order(world(model(A, HOT, load_s=0.0), model(B, HOT, load_s=0.0))) == [A, B]
