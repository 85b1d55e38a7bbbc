"""What is declared: the models of a node, and what people set."""

from __future__ import annotations

import pytest

from contracts.config import ModelProfile
from contracts.events import PriorityClass
from contracts.ids import NodeId
from contracts.world import Mode, ModelStatus, NodeStatus, Residency, Sla
from controller.catalogue import (
    declared_slas,
    merged_profiles,
    with_catalogue,
    with_controls,
    with_load_request,
    with_unload_request,
)
from controller.fold import fold
from controller.membership import on_nodes
from tests.worlds import (
    MIB,
    NODE,
    A,
    B,
    C,
    completed,
    dispatched,
    model,
    observed,
    received,
    world,
)


def listed(w, *names, profiles=None, footprints=None, node=NODE):
    return with_catalogue(w, node, names, profiles or {}, footprints or {})


@pytest.mark.case("P154")
def test_a_node_that_is_configured_no_more_goes_with_all_that_was_on_it():
    other = NodeId("other")
    w = world(model(A, Residency.HOT, in_flight=1), model(B, Residency.HOT, node=other, waiting=1))
    kept = on_nodes(w, {NODE})
    assert (set(kept.nodes), set(kept.models)) == ({NODE}, {A})
    assert {request.model for request in kept.requests.values()} == {A}
    assert on_nodes(w, {NODE, other}) == w


class TestCatalogue:
    def test_new_models_come_in_cold(self):
        w = listed(world(now_s=100.0), A)
        assert w.models[A] == ModelStatus(model=A, node=NODE, residency=Residency.COLD)

    def test_the_poll_that_listed_a_model_says_whether_it_is_resident(self):
        # the poll began at 99 s, before the list was read
        w = fold(listed(world(now_s=100.0), A), observed(99.0, A))
        assert w.models[A].residency is Residency.HOT

    def test_a_node_that_is_new_comes_in_as_not_seen_yet(self):
        other = NodeId("other")
        w = listed(world(), A, node=other)
        assert w.nodes[other] == NodeStatus(node=other, lists=(A,))
        assert w.nodes[NODE].alive

    def test_known_models_stay_as_they_are(self):
        w = world(model(A, Residency.HOT, in_flight=1))
        assert listed(w, A).models == w.models

    @pytest.mark.parametrize("residency", [Residency.COLD, Residency.FAILED])
    def test_a_missing_model_goes(self, residency):
        assert set(listed(world(model(A, residency), model(B)), B).models) == {B}

    @pytest.mark.parametrize(
        "residency", [Residency.LOADING, Residency.HOT, Residency.DRAINING, Residency.UNLOADING]
    )
    def test_unless_it_holds_memory(self, residency):
        assert set(listed(world(model(A, residency)), B).models) == {A, B}

    def test_requests_for_a_model_that_went_go_with_it(self):
        w = fold(fold(world(model(A), model(B)), received("r", A, 101.0)), received("s", B, 101.0))
        w = listed(w, B)
        assert set(w.requests) == {"s"}
        # Listed again it starts from nothing, and the end of the old request is nobody's.
        w = fold(fold(listed(w, A, B), dispatched("r", A, 102.0)), completed("r", A, 103.0))
        assert (w.models[A].waiting, w.models[A].in_flight) == (0, 0)

    def test_a_model_that_another_node_lists_as_well_stays(self):
        w = listed(world(model(A), model(B)), A, node=NodeId("other"))
        assert set(listed(w).models) == {A}

    def test_a_nodes_accelerator_is_known_with_its_list(self):
        w = with_catalogue(world(), NODE, [B, A], {}, {}, accelerator="rocm")
        assert (w.nodes[NODE].accelerator, w.nodes[NODE].lists) == ("rocm", (A, B))

    def test_models_of_other_nodes_are_theirs(self):
        other = model(B, node=NodeId("other"))
        assert set(listed(world(model(A), other), A).models) == {A, B}

    def test_what_is_known_stands_over_the_estimate_and_that_over_the_profile(self):
        profiles = {name: ModelProfile(model=name, footprint_bytes=3 * MIB) for name in (A, B, C)}
        footprints = {A: 2 * MIB, B: 2 * MIB}
        w = listed(world(model(A, mb=1)), A, B, C, profiles=profiles, footprints=footprints)
        assert [w.models[name].footprint_bytes for name in (A, B, C)] == [MIB, 2 * MIB, 3 * MIB]

    def test_a_profile_that_declares_no_footprint_leaves_it_unknown(self):
        w = listed(world(), A, profiles={A: ModelProfile(model=A)})
        assert w.models[A].footprint_bytes is None


def test_what_people_set_replaces_what_was_set():
    sla = Sla(model=A, target_s=1.0)
    w = with_controls(
        world(model(A, pinned=True), model(B)), mode=Mode.OBSERVE, slas={A: sla}, pins={B}
    )
    assert (w.mode, w.slas) == (Mode.OBSERVE, {A: sla})
    assert [w.models[name].pinned for name in (A, B)] == [False, True]


def test_a_pin_of_an_unlisted_model_waits_for_it():
    assert set(with_controls(world(model(A)), mode=Mode.ACTIVE, slas={}, pins={C}).models) == {A}


def wishes(w):
    return set(w.operator_loads), set(w.operator_unloads)


class TestOperators:
    COLD = (Residency.COLD, Residency.FAILED)
    THERE = (Residency.LOADING, Residency.HOT)
    GOING = (Residency.DRAINING, Residency.UNLOADING)

    @pytest.mark.parametrize("residency", COLD + GOING)
    def test_a_load_is_kept_until_it_begins(self, residency):
        assert with_load_request(world(model(A, residency)), A).operator_loads == {A}

    @pytest.mark.parametrize("residency", THERE)
    def test_a_load_of_what_is_there_is_done(self, residency):
        assert not with_load_request(world(model(A, residency)), A).operator_loads

    @pytest.mark.parametrize("residency", THERE + GOING)
    def test_an_unload_is_kept_until_it_is_gone(self, residency):
        assert with_unload_request(world(model(A, residency)), A).operator_unloads == {A}

    @pytest.mark.parametrize("residency", COLD)
    def test_an_unload_of_what_is_not_there_is_done(self, residency):
        assert not with_unload_request(world(model(A, residency)), A).operator_unloads

    def test_the_last_wish_stands(self):
        w = with_load_request(with_unload_request(world(model(A, Residency.DRAINING)), A), A)
        assert wishes(w) == ({A}, set())
        w = with_unload_request(w, A)
        assert wishes(w) == (set(), {A})

    def test_wishes_for_unlisted_models_are_not_collected(self):
        w = with_unload_request(with_load_request(world(), A), A)
        assert wishes(w) == (set(), set())


def test_declared_targets_are_slas():
    profiles = {
        A: ModelProfile(model=A, target_s=1.5, priority=PriorityClass.BATCH),
        B: ModelProfile(model=B, target_s=3.0),
        C: ModelProfile(model=C, priority=PriorityClass.BATCH),
    }
    assert declared_slas(profiles) == {
        A: Sla(model=A, target_s=1.5, priority=PriorityClass.BATCH),
        B: Sla(model=B, target_s=3.0, priority=PriorityClass.REALTIME),
    }


def test_slots_of_localais_own_file_stay_where_none_are_configured():
    found = {A: ModelProfile(model=A, slots=4), B: ModelProfile(model=B, slots=2)}
    configured = {
        A: ModelProfile(model=A, target_s=1.0),
        B: ModelProfile(model=B, slots=1),
        C: ModelProfile(model=C),
    }
    merged = merged_profiles(found, configured)
    assert merged[A] == ModelProfile(model=A, target_s=1.0, slots=4)
    assert merged[B].slots == 1
    assert merged[C].slots is None


def test_models_that_may_not_be_there_together_are_known_as_such():
    profiles = {A: ModelProfile(model=A, exclusive=("heavy",)), B: ModelProfile(model=B)}
    w = listed(world(), A, B, profiles=profiles)
    assert (w.models[A].exclusive, w.models[B].exclusive) == (("heavy",), ())
    assert listed(w, A, B, profiles={}).models[A].exclusive == ("heavy",)
