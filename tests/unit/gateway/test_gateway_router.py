"""Which node a request goes to."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.gateway.router import (
    RESOURCE_AWARE,
    WEIGHTED_ROUND_ROBIN,
    Place,
    choose,
    filtered,
    is_makeshift,
    score,
)
from contracts.events import PriorityClass
from contracts.ids import NodeId

ONE, TWO, THREE = (NodeId(name) for name in ("one", "two", "three"))
REALTIME, BATCH, BACKGROUND = PriorityClass


def place(node, **fields):
    return replace(Place(node=node, accelerator="cuda", is_resident=True), **fields)


def chosen(*places, priority=REALTIME, **how):
    choice = choose(places, priority, **how)
    return None if choice is None else choice.node


class TestFilter:
    def names(self, *places, priority=REALTIME):
        return [each.node for each in filtered(places, priority)]

    def test_an_open_circuit_shuts_its_place(self):
        assert self.names(place(ONE, closed=False), place(TWO)) == [TWO]

    def test_and_when_all_are_there_is_no_backend(self):
        assert chosen(place(ONE, closed=False), place(TWO, closed=False)) is None
        assert chosen() is None

    def test_nodes_that_are_lost_are_left_out_while_there_are_others(self):
        assert self.names(place(ONE, is_alive=False), place(TWO)) == [TWO]
        assert self.names(place(ONE, is_alive=False)) == [ONE]

    def test_where_it_is_resident(self):
        home = place(ONE, is_home=True, is_resident=False)
        assert self.names(home, place(TWO)) == [TWO]

    def test_or_at_home(self):
        cold = [place(node, is_resident=False) for node in (ONE, TWO, THREE)]
        cold[1] = replace(cold[1], is_home=True)
        assert self.names(*cold) == [TWO]

    def test_or_wherever_it_is_known(self):
        assert self.names(place(ONE, is_resident=False), place(TWO, is_resident=False)) == [
            ONE,
            TWO,
        ]

    def test_where_a_slot_is_free(self):
        full, free = place(ONE, slots=2, in_flight=2), place(TWO, slots=2, in_flight=1)
        assert self.names(full, free) == [TWO]
        assert self.names(full) == [ONE]

    @pytest.mark.parametrize(("priority", "who"), [(REALTIME, [ONE]), (BATCH, [ONE])])
    def test_a_cpu_is_what_is_left(self, priority, who):
        gpu, cpu = place(ONE), place(TWO, accelerator="cpu")
        assert self.names(gpu, cpu, priority=priority) == who
        assert self.names(replace(gpu, slots=1, in_flight=1), cpu, priority=priority) == [TWO]
        assert self.names(replace(gpu, closed=False), cpu, priority=priority) == [TWO]

    def test_background_work_may_take_it(self):
        gpu, cpu = place(ONE), place(TWO, accelerator="cpu")
        assert self.names(gpu, cpu, priority=BACKGROUND) == [ONE, TWO]
        assert chosen(gpu, cpu, priority=BACKGROUND) == TWO


class TestMakeshift:
    def home(self, **fields):
        return place(ONE, is_home=True, **{"is_resident": False, **fields})

    def test_a_cpu_that_helps_a_gpu_out(self):
        cpu = place(TWO, accelerator="cpu")
        assert is_makeshift([self.home(), cpu], TWO)

    @pytest.mark.parametrize(
        "fields", [{"is_resident": True}, {"is_alive": False}, {"accelerator": "cpu"}]
    )
    def test_not_where_the_home_is_there_or_gone_or_no_better(self, fields):
        assert not is_makeshift([self.home(**fields), place(TWO, accelerator="cpu")], TWO)

    def test_nor_where_another_gpu_serves_or_the_home_itself(self):
        assert not is_makeshift([self.home(), place(TWO)], TWO)
        assert not is_makeshift([self.home(), place(TWO, accelerator="cpu")], ONE)
        assert not is_makeshift([place(TWO, accelerator="cpu")], TWO)


class TestScore:
    def test_load_is_the_share_of_slots_in_use(self):
        assert score(place(ONE, slots=4, in_flight=1), REALTIME).load == 0.25
        assert score(place(ONE, slots=4, in_flight=9), REALTIME).load == 1.0
        assert score(place(ONE, slots=0), REALTIME).load == 0.0

    def test_or_what_the_node_has_to_do(self):
        assert score(place(ONE), REALTIME).load == 0.0
        assert score(place(ONE, node_in_flight=4), REALTIME).load == 0.5
        assert score(place(ONE, node_in_flight=12), REALTIME).load == 0.75

    def test_affinity_is_being_there_and_having_been_there(self):
        cold = place(ONE, is_resident=False)
        assert score(cold, REALTIME).affinity == 0.0
        assert score(place(ONE), REALTIME).affinity == 0.5
        assert score(place(ONE, was_last=True), REALTIME).affinity == 1.0

    @pytest.mark.parametrize(
        ("priority", "accelerator", "expected"),
        [
            (REALTIME, "cuda", 0.8),
            (BATCH, "rocm", 0.8),
            (BACKGROUND, "metal", 0.4),
            (REALTIME, "cpu", 0.0),
            (BATCH, "cpu", 0.4),
            (BACKGROUND, "cpu", 0.8),
        ],
    )
    def test_priority_is_what_the_class_prefers(self, priority, accelerator, expected):
        here = place(ONE, accelerator=accelerator)
        assert score(here, priority).priority == pytest.approx(expected)
        primary = replace(here, is_primary=True)
        assert score(primary, priority).priority == pytest.approx(expected + 0.2)

    def test_the_example_of_the_page(self):
        busy = place(ONE, was_last=True, slots=4, in_flight=3, is_primary=True)
        idle = place(TWO, accelerator="rocm", slots=4)
        assert score(busy, REALTIME).total == pytest.approx(0.15 + 0.30 + 0.10)
        assert score(idle, REALTIME).total == pytest.approx(0.60 + 0.15 + 0.08)
        assert chosen(busy, idle) == TWO

    @given(
        st.builds(
            Place,
            node=st.just(ONE),
            accelerator=st.sampled_from(["cuda", "cpu", ""]),
            is_primary=st.booleans(),
            is_resident=st.booleans(),
            was_last=st.booleans(),
            in_flight=st.integers(0, 99),
            slots=st.none() | st.integers(0, 99),
            node_in_flight=st.integers(0, 999),
        ),
        st.sampled_from(PriorityClass),
    )
    def test_it_is_between_nothing_and_one(self, here, priority):
        assert 0.0 <= score(here, priority).total <= 1.0


class TestResourceAware:
    def test_a_client_stays_where_its_prompts_are_cached(self):
        warm = place(TWO, was_last=True, node_in_flight=1)
        assert chosen(place(ONE), warm) == TWO

    def test_until_it_is_too_busy_there(self):
        warm = place(TWO, was_last=True, node_in_flight=4)
        assert chosen(place(ONE), warm) == ONE

    def test_of_equals_the_idler_then_the_home_then_by_name(self):
        pair = place(TWO, slots=9, node_in_flight=1), place(ONE, slots=9, node_in_flight=2)
        assert chosen(*pair) == TWO
        assert chosen(place(ONE), place(TWO, is_home=True)) == TWO
        assert chosen(place(TWO), place(ONE)) == ONE

    def test_requests_of_many_clients_spread(self):
        in_flight: Counter[NodeId] = Counter()
        for _ in range(12):
            node = chosen(*(place(n, node_in_flight=in_flight[n]) for n in (ONE, TWO, THREE)))
            in_flight[node] += 1
        assert set(in_flight.values()) == {4}


class TestWeightedRoundRobin:
    WEIGHTS: ClassVar = {"cuda": 0.6, "rocm": 0.2, "cpu": 0.2}

    def shares(self, *places, times, weights=None):
        turns, found = None, []
        for _ in range(times):
            choice = choose(
                places,
                REALTIME,
                strategy=WEIGHTED_ROUND_ROBIN,
                weights=self.WEIGHTS if weights is None else weights,
                turns=turns,
            )
            assert choice is not None
            turns = choice.turns
            found.append(choice.node)
        return found

    def places(self):
        return (
            place(ONE),
            place(TWO, accelerator="rocm"),
            place(THREE, accelerator="cpu"),
        )

    def test_each_gets_its_share_exactly_and_none_in_a_lump(self):
        assert self.shares(*self.places(), times=5) == [ONE, THREE, ONE, TWO, ONE]
        assert Counter(self.shares(*self.places(), times=500)) == {ONE: 300, TWO: 100, THREE: 100}

    def test_an_accelerator_without_a_weight_serves_when_it_is_alone(self):
        other = place(TWO, accelerator="sycl")
        assert set(self.shares(place(ONE), other, times=20)) == {ONE}
        assert set(self.shares(other, place(THREE, accelerator=""), times=20)) == {TWO, THREE}

    def test_filters_come_first(self):
        one, two, three = self.places()
        assert set(self.shares(replace(one, closed=False), two, three, times=10)) == {TWO, THREE}
        cold = replace(two, is_resident=False)
        assert set(self.shares(one, cold, three, times=10)) == {ONE, THREE}

    def test_without_weights_all_alike(self):
        assert Counter(self.shares(*self.places(), times=30, weights={})) == {
            ONE: 10,
            TWO: 10,
            THREE: 10,
        }

    def test_its_state_is_passed_in(self):
        first = choose(self.places(), REALTIME, strategy=WEIGHTED_ROUND_ROBIN)
        assert first is not None
        assert first.turns is not None
        other = choose(self.places(), REALTIME, strategy=RESOURCE_AWARE)
        assert other is not None
        assert other.turns is None
