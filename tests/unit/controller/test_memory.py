from __future__ import annotations

import doctest

import pytest

from contracts.config import PlannerConfig
from contracts.ids import NodeId
from contracts.world import NodeStatus, Residency
from controller import memory
from controller.memory import Room, room, usable_bytes
from tests.worlds import MIB, NODE, A, B, C, D, config, model, world

HOT = Residency.HOT


def test_the_example_in_the_docstring_holds():
    (example,) = doctest.DocTestFinder().find(
        usable_bytes, "usable_bytes", globs={**vars(memory), "NodeId": NodeId}
    )
    assert doctest.DocTestRunner().run(example) == (0, 2)


@pytest.mark.parametrize(
    ("total", "others", "budget", "reserve", "usable"),
    [
        (1000, 0, None, 0.0, 1000),
        (1000, 100, None, 0.2, 720),
        (1000, 100, 500, 0.2, 500),
        (1000, 100, 5000, 0.2, 720),
        (1000, 2000, None, 0.0, 0),
        (None, 100, 500, 0.2, 500),
        (None, 0, None, 0.2, None),
    ],
)
def test_what_orders_may_fill(total, others, budget, reserve, usable):
    node = NodeStatus(node=NODE, memory_total_bytes=total, used_by_others_bytes=others)
    assert usable_bytes(node, PlannerConfig(budget_bytes=budget, reserve_ratio=reserve)) == usable


def test_a_models_memory_counts_from_the_start_of_its_load_to_the_end_of_its_unload():
    w = world(
        model(A, Residency.LOADING, mb=1),
        model(B, HOT, mb=2),
        model(C, Residency.DRAINING, mb=4),
        model(D, Residency.UNLOADING, mb=8),
        mb=30,
    )
    here = room(w, NODE, config())
    assert here.occupied_bytes == 15 * MIB
    assert (here.residents, here.loading, here.draining) == (4, 1, 2)
    assert here.usable_bytes == 30 * MIB


def test_cold_and_failed_models_and_those_of_other_nodes_take_none():
    w = world(
        model(A, mb=1),
        model(B, Residency.FAILED, mb=2),
        model(C, HOT, mb=4, node=NodeId("other")),
        model(D, HOT, mb=None),
    )
    here = room(w, NODE, config())
    assert (here.occupied_bytes, here.residents, here.loading) == (0, 1, 0)


@pytest.mark.parametrize(
    ("localai", "policy", "limit"), [(None, None, None), (3, None, 3), (None, 2, 2), (3, 2, 2)]
)
def test_the_smaller_limit_holds(localai, policy, limit):
    w = world(model(A), model_limit=localai)
    assert room(w, NODE, config(), model_limit=policy).model_limit == limit


def a_room(usable=30, occupied=20, residents=2, limit=None, loading=0):
    return Room(
        usable_bytes=usable,
        occupied_bytes=occupied,
        residents=residents,
        model_limit=limit,
        loading=loading,
    )


def test_missing_bytes():
    assert a_room().missing_bytes(10) == 0
    assert a_room().missing_bytes(11) == 1
    assert a_room(occupied=40).missing_bytes(0) == 10
    assert a_room(usable=None).missing_bytes(10**12) == 0


def test_missing_slots():
    assert a_room().missing_slots() == 0
    assert a_room(limit=3).missing_slots() == 0
    assert a_room(limit=2).missing_slots() == 1
    assert a_room(limit=1).missing_slots() == 2
