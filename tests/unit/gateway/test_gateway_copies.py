"""A model on several nodes, and one whose process is dead, as a gateway knows them."""

from __future__ import annotations

from dataclasses import replace

from api.gateway.residency import GHOST_UNHEARD_S, RouteBook
from api.gateway.standings import Copy, Kind
from contracts.ids import ModelId, NodeId
from contracts.reasons import Reason
from contracts.routing import ModelRoute, NodeRoute, RoutingTable
from contracts.world import Mode, Residency

HOME, OTHER, THIRD = (NodeId(name) for name in ("home", "other", "third"))
A = ModelId("a")
HOT, COLD = Residency.HOT, Residency.COLD


def table(at_home, *, others=(), lost=(), made_at_s=100.0, **details):
    places = {HOME: at_home, **dict(others)} if others else {}
    plain = RoutingTable(
        token=1,
        made_at_s=made_at_s,
        mode=Mode.ACTIVE,
        models={A: ModelRoute(model=A, node=HOME, residency=at_home, places=places)},
        nodes={
            name: NodeRoute(node=name, alive=name not in lost, free_bytes=None)
            for name in (HOME, OTHER, THIRD)
        },
    )
    return replace(plain, **details)


def book(at_home, **details):
    kept = RouteBook()
    assert kept.accept(table(at_home, **details))
    return kept


class TestCopies:
    def test_the_home_comes_first_and_then_by_name(self):
        kept = book(HOT, others=((THIRD, COLD), (OTHER, HOT)), lost=(OTHER,))
        assert kept.copies(A) == (
            Copy(node=HOME, is_home=True, is_resident=True),
            Copy(node=OTHER, is_home=False, is_resident=True, is_alive=False),
            Copy(node=THIRD, is_home=False, is_resident=False),
        )

    def test_what_no_table_tells_of_has_none(self):
        assert RouteBook().copies(A) == ()
        assert book(HOT).copies(ModelId("b")) == ()

    def test_one_that_is_about_to_go_counts_as_gone(self):
        (home,) = book(HOT, draining={A: "d"}).copies(A)
        assert not home.is_resident
        kept = book(HOT)
        kept.begin_stop(A)
        assert not kept.copies(A)[0].is_resident

    def test_what_this_gateway_loaded_itself_is_where_it_loaded_it(self):
        kept = book(COLD, others=((OTHER, COLD),))
        kept.note_loaded(A, OTHER, now_s=101.0, load_s=3.0)
        home, other = kept.copies(A)
        assert (home.node, home.is_resident, other.node) == (OTHER, True, HOME)

    def test_a_node_that_no_table_names_is_alive(self):
        kept = RouteBook()
        kept.accept(table(HOT, nodes={}))
        assert kept.copies(A)[0].is_alive

    def test_slots_are_counted_by_those_that_can_serve(self):
        places = ((OTHER, HOT), (THIRD, HOT))
        assert book(HOT, others=places).copy_count(A) == 3
        assert book(HOT, others=places, lost=(OTHER,)).copy_count(A) == 2
        assert book(COLD, others=((OTHER, COLD),)).copy_count(A) == 1
        assert book(HOT).copy_count(A) == 1
        assert RouteBook().copy_count(A) == 1


class TestStanding:
    def test_a_copy_elsewhere_serves_while_the_home_cannot(self):
        for at_home in (COLD, Residency.LOADING, Residency.FAILED, Residency.DRAINING):
            standing = book(at_home, others=((OTHER, HOT),)).standing(A, 100.0)
            assert (standing.kind, standing.node) == (Kind.FORWARD, OTHER)
            assert (standing.reason, standing.is_cold) == (Reason.RESIDENT, False)

    def test_also_while_the_home_drains(self):
        kept = book(HOT, others=((OTHER, HOT),), draining={A: "d"})
        assert kept.standing(A, 100.0).node == OTHER

    def test_the_home_serves_where_it_can(self):
        assert book(HOT, others=((OTHER, HOT),)).standing(A, 100.0).node == HOME

    def test_a_copy_on_a_lost_node_is_none(self):
        kept = book(COLD, others=((OTHER, HOT),), lost=(OTHER,))
        assert kept.standing(A, 100.0).kind is Kind.WAIT

    def test_nor_is_one_that_is_not_to_be_asked(self):
        kept = book(COLD, others=((OTHER, HOT),))
        kept.is_shut = lambda node, model: (node, model) == (OTHER, A)
        assert kept.standing(A, 100.0).kind is Kind.WAIT


class TestGhost:
    def test_it_has_to_be_loaded_again(self):
        kept = book(HOT)
        kept.note_ghost(A, HOME, now_s=101.0)
        standing = kept.standing(A, 101.0)
        assert (standing.kind, standing.reason) == (Kind.WAIT, Reason.DEMAND)
        assert kept.is_ghost(A)

    def test_tables_that_do_not_know_yet_are_not_believed(self):
        kept = book(HOT)
        kept.note_ghost(A, HOME, now_s=101.0)
        kept.accept(table(HOT, made_at_s=102.0))
        assert kept.standing(A, 102.0).kind is Kind.WAIT
        kept.accept(table(HOT, made_at_s=101.0 + GHOST_UNHEARD_S))
        assert kept.standing(A, 112.0).kind is Kind.FORWARD
        assert not kept.is_ghost(A)

    def test_those_that_do_are(self):
        kept = book(HOT)
        kept.note_ghost(A, HOME, now_s=101.0)
        kept.accept(table(Residency.DRAINING, made_at_s=101.5))
        assert not kept.is_ghost(A)
        kept.accept(table(HOT, made_at_s=103.0))
        assert kept.standing(A, 103.0).kind is Kind.FORWARD

    def test_one_of_another_node_leaves_the_home_alone(self):
        kept = book(HOT, others=((OTHER, HOT),))
        kept.note_ghost(A, OTHER, now_s=101.0)
        assert kept.standing(A, 101.0).node == HOME

    def test_a_model_that_is_gone_from_the_table_is_no_ghost(self):
        kept = book(HOT)
        kept.note_ghost(A, HOME, now_s=101.0)
        kept.accept(table(HOT, made_at_s=101.5, models={}))
        assert not kept.is_ghost(A)


class TestLoads:
    def test_whoever_cares_hears_of_each(self):
        heard: list[tuple[ModelId, NodeId]] = []
        kept = RouteBook()
        kept.on_loaded = lambda model, node: heard.append((model, node))
        started = ModelRoute(
            model=A, node=HOME, residency=Residency.LOADING, load_started_at_s=90.0
        )
        kept.accept(table(COLD, models={A: started}))
        kept.accept(table(HOT, made_at_s=104.0))
        assert kept.load_p99_s(A) == 14.0
        kept.note_loaded(A, OTHER, now_s=105.0, load_s=20.0)
        assert kept.load_p99_s(A) == 20.0
        assert heard == [(A, HOME), (A, OTHER)]

    def test_before_the_first_what_is_expected_counts(self):
        expected = ModelRoute(model=A, node=HOME, residency=COLD, expected_load_s=30.0)
        assert book(COLD, models={A: expected}).load_p99_s(A) == 30.0
        assert RouteBook().load_p99_s(A) is None
