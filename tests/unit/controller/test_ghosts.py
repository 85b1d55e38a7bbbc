"""A model that LocalAI lists although its process is dead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.events import UnloadCause
from contracts.ids import GatewayId, NodeId
from contracts.messages import GhostSeen
from contracts.plan import PlannerState, UnloadModel
from contracts.reasons import Reason
from contracts.world import Mode, NodeStatus, Residency
from controller.fold import commit
from controller.ghosts import ghost_plan
from tests.worlds import NODE, A, model, world

OTHER = NodeId("other")


def seen(node=NODE, name=A):
    return GhostSeen(gateway=GatewayId("gw"), model=name, node=node, at_s=100.0)


def with_copy(w):
    copy = NodeStatus(node=OTHER, alive=True, lists=(A,), residents=(A,))
    return replace(w, nodes={**w.nodes, OTHER: copy})


def test_it_is_to_be_forgotten_and_counts_as_draining_meanwhile():
    w = world(model(A, Residency.HOT, in_flight=1))
    result = ghost_plan(w, PlannerState(sequence=4), seen())
    assert result is not None
    (action,), (decision,) = result.plan.actions, result.plan.decisions
    assert isinstance(action, UnloadModel)
    assert (action.model, action.node, action.cause) == (A, NODE, UnloadCause.GHOST)
    assert (decision.subject, decision.reason) == (A, Reason.GHOST)
    assert decision.evidence == (("node", NODE), ("seen_by", "gw"))
    assert result.state.sequence == 5
    assert commit(w, result.plan).models[A].residency is Residency.DRAINING


def test_a_copy_elsewhere_goes_without_its_home():
    w = with_copy(world(model(A, Residency.HOT)))
    result = ghost_plan(w, PlannerState(), seen(OTHER))
    assert result is not None
    assert commit(w, result.plan).models[A].residency is Residency.HOT


@pytest.mark.parametrize(
    "w",
    [
        world(),
        world(model(A, Residency.LOADING)),
        world(model(A, Residency.DRAINING)),
        world(model(A, Residency.HOT), mode=Mode.OBSERVE),
        world(model(A, Residency.HOT), alive=False),
        world(model(A, Residency.HOT, spared_until_s=101.0)),
    ],
    ids=["unknown", "loading", "draining", "observe", "lost", "looked-just-now"],
)
def test_there_may_be_nothing_to_order(w):
    assert ghost_plan(w, PlannerState(), seen()) is None


def test_a_node_or_a_copy_that_is_unknown_is_nobodys():
    w = world(model(A, Residency.HOT))
    assert ghost_plan(w, PlannerState(), seen(OTHER)) is None
    other = {OTHER: NodeStatus(node=OTHER, alive=True)}
    w = replace(w, nodes={**w.nodes, **other})
    assert ghost_plan(w, PlannerState(), seen(OTHER)) is None
