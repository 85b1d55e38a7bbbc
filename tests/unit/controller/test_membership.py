"""Nodes that come into the world and leave it, and where their models go."""

from __future__ import annotations

from dataclasses import replace

from contracts.events import LoadCause, NodeJoined, NodeLeft, NodeLost
from contracts.ids import NodeId
from contracts.instances import Instance
from contracts.plan import Guard, PlannerState
from contracts.world import HostMemory, NodeStatus, Residency
from controller.fold import fold
from controller.homes import rehomed
from controller.membership import answering, on_nodes, with_instances, without_node
from controller.routes import routing_table
from tests.worlds import NODE, A, B, C, config, model, stamp, world

ONE, TWO, THREE = (NodeId(f"localai-10.0.0.{number}") for number in (1, 2, 3))
HOT, COLD = Residency.HOT, Residency.COLD


def instance(node, **fields):
    return Instance(node=node, address=node.removeprefix("localai-"), joined_at_s=0.0, **fields)


def node(name, *residents, lists=(A, B), **fields):
    return NodeStatus(node=name, alive=True, lists=lists, residents=residents, **fields)


def at(*nodes, models=(), **fields):
    instances = {each.node: instance(each.node) for each in nodes}
    listed = {each.node: each for each in nodes}
    return replace(world(*models), nodes=listed, instances=instances, **fields)


class TestJoining:
    def test_a_new_one_is_known_and_does_not_answer_yet(self):
        w = fold(at(node(ONE)), NodeJoined(**stamp(100.0), node=TWO, address="10.0.0.2"))
        assert w.nodes[TWO] == NodeStatus(node=TWO)
        assert w.instances[TWO] == replace(instance(TWO), joined_at_s=100.0)
        assert answering(w) == {ONE}

    def test_one_that_is_known_stays_as_it_is(self):
        w = at(node(ONE, A))
        after = fold(w, NodeJoined(**stamp(100.0), node=ONE, address="10.0.0.1"))
        assert (after.nodes, after.instances) == (w.nodes, w.instances)


class TestLeaving:
    def test_models_go_to_another_node_that_lists_them_and_others_with_it(self):
        models = [
            model(A, HOT, node=ONE, used_s=50.0, in_flight=1, load_cause=LoadCause.DEMAND),
            model(B, HOT, node=ONE, used_s=50.0),
            model(C, HOT, node=ONE, waiting=1),
        ]
        nodes = [node(ONE, A, B, C, lists=(A, B, C)), node(TWO, B), node(THREE, lists=(A,))]
        w = at(*nodes, models=models, hosts={ONE: HostMemory(total_bytes=1, available_bytes=1)})
        w = fold(w, NodeLeft(**stamp(100.0), node=ONE))
        assert (set(w.nodes), set(w.instances), w.hosts) == ({TWO, THREE}, {TWO, THREE}, {})
        assert {name: (m.node, m.residency) for name, m in w.models.items()} == {
            A: (THREE, COLD) if THREE < TWO else (TWO, COLD),
            B: (TWO, HOT),
        }
        assert w.models[A].load_cause is None
        assert {request.model for request in w.requests.values()} == {A}

    def test_one_that_answers_and_stays_goes_before_one_that_holds_it(self):
        gone = node(ONE, A)
        lost = replace(node(TWO, A), alive=False)
        leaving = node(THREE, A, leaving=True)
        w = at(gone, lost, leaving, models=[model(A, HOT, node=ONE)])
        assert fold(w, NodeLeft(**stamp(100.0), node=ONE)).models[A].node == THREE

    def test_models_of_other_nodes_are_left_alone(self):
        w = at(node(ONE), node(TWO, A), models=[model(A, HOT, node=TWO, in_flight=1)])
        after = fold(w, NodeLeft(**stamp(100.0), node=ONE))
        assert (after.models, after.requests) == (w.models, w.requests)

    def test_a_node_that_is_lost_is_not_forgotten(self):
        w = fold(at(node(ONE, A)), NodeLost(**stamp(100.0), node=ONE, error="refused"))
        assert (w.nodes[ONE].alive, w.nodes[ONE].residents, w.nodes[ONE].lists) == (
            False, (), (A, B),
        )  # fmt: skip
        assert NODE in fold(w, NodeLost(**stamp(100.0), node=NODE, error="refused")).nodes

    def test_what_a_policy_remembers_of_it_goes_as_well(self):
        state = PlannerState(guards={ONE: Guard(), TWO: Guard()})
        assert set(without_node(state, ONE).guards) == {TWO}


class TestOnItsWayOut:
    def leaving(self, **fields):
        models = [model(A, HOT, node=ONE, used_s=50.0), model(C, HOT, node=ONE, used_s=50.0)]
        w = at(node(ONE, A, C, lists=(A, C)), node(TWO, **fields), models=models)
        return with_instances(w, {**w.instances, ONE: instance(ONE, is_leaving=True)})

    def test_its_models_find_another_home_and_those_of_nobody_else_stay(self):
        w, moves = rehomed(self.leaving(), config(), {})
        assert (w.models[A].node, w.models[A].residency) == (TWO, COLD)
        assert (w.models[C].node, w.models[C].residency) == (ONE, HOT)
        assert [(m.model, m.after, m.reason.value) for m in moves] == [
            (A, TWO, "instance_missing"),
        ]  # fmt: skip

    def test_gateways_hear_of_it_as_of_one_that_is_lost_and_are_told_addresses(self):
        table = routing_table(
            self.leaving(), token=1, config=config(), profiles={}, draining={}, aliases={}
        )
        assert {name: (n.alive, n.address) for name, n in table.nodes.items()} == {
            ONE: (False, "10.0.0.1"), TWO: (True, "10.0.0.2"),
        }  # fmt: skip
        assert table.primary == TWO

    def test_one_that_is_not_in_the_world_is_not_put_there(self):
        w = at(node(ONE))
        assert with_instances(w, {**w.instances, TWO: instance(TWO)}) == w

    def test_it_is_back_when_it_is_found_again(self):
        w = self.leaving()
        w = with_instances(w, {**w.instances, ONE: instance(ONE)})
        assert not w.nodes[ONE].leaving


def test_only_nodes_that_are_there_are_kept():
    w = at(node(ONE), node(TWO), models=[model(A, HOT, node=ONE, in_flight=1)])
    kept = on_nodes(w, {TWO})
    assert (set(kept.nodes), set(kept.instances), kept.models, kept.requests) == (
        {TWO}, {TWO}, {}, {},
    )  # fmt: skip
