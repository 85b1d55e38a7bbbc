"""What happens to a model on other nodes than its home."""

from __future__ import annotations

from dataclasses import replace

from contracts.events import LoadCause, NodeLost, NodeObserved
from contracts.ids import GatewayId, NodeId, RequestId
from contracts.messages import LoadWanted
from contracts.plan import LoadModel, Plan
from contracts.reasons import Reason
from contracts.world import Mode, NodeStatus, Residency
from controller.fold import commit, fold
from controller.open_requests import fold_wanted
from controller.routes import routing_table
from tests.worlds import (
    NODE,
    A,
    B,
    config,
    dispatched,
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

OTHER = NodeId("other")
HOT, COLD = Residency.HOT, Residency.COLD


def two_nodes(*models, residents=()):
    w = world(*models)
    nodes = {
        NODE: replace(w.nodes[NODE], lists=(A, B), accelerator="cuda"),
        OTHER: NodeStatus(
            node=OTHER, alive=True, lists=(A,), residents=residents, accelerator="cpu"
        ),
    }
    return replace(w, nodes=nodes)


def elsewhere(event):
    return replace(event, node=OTHER)


def test_a_load_elsewhere_is_a_copy_and_not_the_home():
    w = two_nodes(model(A))
    for event in (load_started(A, 101.0), loaded(A, 105.0)):
        w = fold(w, elsewhere(event))
    assert w.models[A].residency is COLD
    assert w.nodes[OTHER].residents == (A,)
    w = fold(w, elsewhere(unloaded(A, 106.0)))
    assert w.nodes[OTHER].residents == ()


def test_a_load_that_failed_elsewhere_is_no_failure_of_the_home():
    w = fold(two_nodes(model(A, HOT)), elsewhere(load_failed(A, 101.0)))
    assert w.models[A].residency is HOT


def test_orders_for_models_that_went_meanwhile_change_nothing():
    gone = LoadModel(
        action_id="a", model=A, node=NODE, cause=LoadCause.DEMAND, reason=Reason.DEMAND
    )
    plan = Plan(
        plan_id="p",
        made_at_s=100.0,
        based_on=1,
        mode=Mode.ACTIVE,
        actions=(gone,),
        decisions=(),
    )
    w = world(model(B))
    assert commit(w, plan).models == w.models


def test_what_is_loaded_at_home_is_resident_there():
    w = fold(two_nodes(model(A)), loaded(A, 105.0, cause=LoadCause.DEMAND))
    assert w.nodes[NODE].residents == (A,)
    assert fold(w, loaded(A, 106.0)).nodes[NODE].residents == (A,)


def test_a_node_that_nobody_listed_has_no_copies():
    w = fold(world(model(A)), elsewhere(loaded(A, 105.0)))
    assert OTHER not in w.nodes


def test_a_poll_says_what_is_resident_and_a_lost_node_is_not_known():
    w = two_nodes(model(A))
    w = fold(w, NodeObserved(**{**_fields(observed(101.0, B, A)), "node": OTHER}))
    assert w.nodes[OTHER].residents == (A, B)
    w = fold(w, NodeLost(**stamp(102.0), node=OTHER, error="gone"))
    assert w.nodes[OTHER].residents == ()


def _fields(event):
    return {name: getattr(event, name) for name in event.__dataclass_fields__}


class TestSentAgain:
    def wanted(self, at_s):
        return LoadWanted(
            gateway=GatewayId("gw"),
            request_id=RequestId("r"),
            model=A,
            at_s=at_s,
            deadline_s=200.0,
        )

    def sent(self):
        w = fold(world(model(A, HOT)), received("r", A, 101.0))
        return fold(w, dispatched("r", A, 102.0))

    def test_a_request_that_met_a_ghost_waits_again(self):
        w = fold_wanted(self.sent(), self.wanted(103.0))
        assert (w.models[A].waiting, w.models[A].in_flight) == (1, 0)
        assert w.models[A].wanted_since_s == 103.0
        assert w.requests[RequestId("r")].node is None
        again = fold(w, dispatched("r", A, 110.0))
        assert (again.models[A].waiting, again.models[A].in_flight) == (0, 1)

    def test_beside_one_that_waits_longer(self):
        w = fold(self.sent(), received("s", A, 101.5))
        w = fold_wanted(w, self.wanted(103.0))
        assert (w.models[A].waiting, w.models[A].wanted_since_s) == (2, 101.5)

    def test_a_wish_from_before_it_was_sent_is_late(self):
        w = self.sent()
        assert fold_wanted(w, self.wanted(101.5)) == w
        still_waiting = fold(world(model(A)), received("r", A, 101.0))
        assert fold_wanted(still_waiting, self.wanted(101.5)) == still_waiting


def test_a_request_that_was_sent_on_is_on_its_last_node():
    w = fold(fold(two_nodes(model(A, HOT)), received("r", A, 101.0)), dispatched("r", A, 102.0))
    w = fold(w, elsewhere(dispatched("r", A, 102.5)))
    request = w.requests[RequestId("r")]
    assert (request.node, request.dispatched_at_s) == (OTHER, 102.0)
    assert w.models[A].in_flight == 1


class TestTable:
    def table(self, w):
        return routing_table(w, token=1, config=config(), profiles={}, draining={}, aliases={})

    def test_it_names_every_node_that_knows_a_model(self):
        found = self.table(two_nodes(model(A, Residency.DRAINING), model(B), residents=(A,)))
        assert found.models[A].places == {NODE: Residency.DRAINING, OTHER: HOT}
        assert found.models[A].node == NODE
        # one that only its home knows has no others to tell of
        assert found.models[B].places == {}

    def test_a_node_without_it_is_cold(self):
        assert self.table(two_nodes(model(A))).models[A].places == {NODE: COLD, OTHER: COLD}

    def test_a_model_that_its_home_lists_no_more_is_still_there(self):
        w = two_nodes(model(A, HOT))
        w = replace(w, nodes={**w.nodes, NODE: replace(w.nodes[NODE], lists=())})
        assert self.table(w).models[A].places == {NODE: HOT, OTHER: COLD}

    def test_nodes_have_an_accelerator_and_their_requests(self):
        w = fold(fold(two_nodes(model(A, HOT)), received("r", A, 101.0)), dispatched("r", A, 102.0))
        nodes = self.table(w).nodes
        assert (nodes[NODE].in_flight, nodes[OTHER].in_flight) == (1, 0)
        assert (nodes[NODE].accelerator, nodes[OTHER].accelerator) == ("cuda", "cpu")
