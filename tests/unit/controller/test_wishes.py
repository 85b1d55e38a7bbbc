from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contracts.events import LoadCause, PriorityClass
from contracts.ids import GatewayId, ModelId, RequestId
from contracts.memory import PlaceId, PlaceKind, PlaceStatus
from contracts.messages import LoadWanted
from contracts.plan import LoadModel, Outcome, PlannerState, UnloadModel
from contracts.reasons import Reason
from contracts.variants import Fallback, Ladder, Rung, RungKind, made_name
from contracts.world import GpuYield, Mode, ModelStatus, Residency
from controller.fold import fold
from controller.open_requests import fold_wanted
from controller.planner import plan
from controller.wish_list import MAX_WISHES, MODEL_S, RUNG_S, with_wish
from controller.wishes import RECENT_S, idle_stand_ins, reason_of, wished, with_stand_ins
from tests.worlds import MIB, NODE, A, B, C, config, dispatched, model, received, world

HOT, COLD, LOADING = Residency.HOT, Residency.COLD, Residency.LOADING
CPU_A = made_name("a", "cpu")
LADDER = Ladder(model=A, rungs=(Rung(model=CPU_A, kind=RungKind.CPU, is_made=True),))
LADDERS = {A: LADDER}


def on_host(mb: int = 10, residency: Residency = COLD, **fields: Any) -> ModelStatus:
    return model(CPU_A, residency, mb=mb, on_host=True, **fields)


def with_places(state, *, gpu_mb: int = 30, host_mb: int = 30):
    """The node tells its card and its host memory apart."""
    places = (
        PlaceStatus(place=PlaceId("GPU-1"), kind=PlaceKind.GPU, total_bytes=gpu_mb * MIB),
        PlaceStatus(place=PlaceId("host"), kind=PlaceKind.HOST, total_bytes=host_mb * MIB),
    )
    node = replace(state.nodes[NODE], places=places, accelerator="cuda")
    return replace(state, nodes={NODE: node})


def wants(name: ModelId, request: str = "r", *, instead_of: ModelId | None = None, at_s=100.0):
    return LoadWanted(
        gateway=GatewayId("gw"),
        request_id=RequestId(request),
        model=name,
        at_s=at_s,
        deadline_s=at_s + 60.0,
        priority=PriorityClass.REALTIME,
        instead_of=instead_of,
    )


def planned(state, **fields):
    return plan(world=state, forecasts={}, state=PlannerState(), config=config(**fields)).plan


# The list


def test_a_wish_holds_until_it_runs_out():
    state = with_wish(world(model(A)), A, 130.0)
    assert [status.model for status in wished(state, state.on_node(NODE))] == [A]
    later = replace(state, taken_at_s=130.0)
    assert wished(later, later.on_node(NODE)) == ()
    assert with_wish(state, A, 120.0) is state
    assert with_wish(state, B, 120.0) is state


def test_the_list_is_bounded_and_forgets_what_has_run_out():
    names = [ModelId(f"m{number}") for number in range(MAX_WISHES + 1)]
    state = world(*(model(name) for name in names))
    for name in names:
        state = with_wish(state, name, 130.0)
    assert len(state.wishes) == MAX_WISHES
    assert names[-1] not in state.wishes
    assert with_wish(state, names[0], 140.0).wishes[names[0]] == 140.0
    later = with_wish(replace(state, taken_at_s=150.0), names[-1], 180.0)
    assert dict(later.wishes) == {names[-1]: 180.0}


def test_what_is_there_or_waited_for_is_no_wish():
    state = world(model(A, HOT), model(B, waiting=1), model(C, LOADING))
    for name in (A, B, C):
        state = with_wish(state, name, 130.0)
    assert wished(state, state.on_node(NODE)) == ()
    assert wished(world(model(A)), ()) == ()


# What gateways tell


def test_a_request_stays_with_its_model_while_a_rung_is_loaded_for_it():
    state = fold_wanted(world(model(A), on_host()), wants(CPU_A, instead_of=A))
    assert (state.models[A].waiting, state.models[CPU_A].waiting) == (1, 0)
    assert dict(state.wishes) == {CPU_A: 100.0 + RUNG_S}


def test_a_request_that_a_rung_serves_is_in_flight_there_and_its_model_is_still_wanted():
    state = fold(world(model(A), on_host(residency=HOT)), received("r", A, 100.0))
    sent = replace(dispatched("r", A, 101.0), served_by=CPU_A)
    state = fold(state, sent)
    assert (state.models[A].waiting, state.models[A].in_flight) == (0, 0)
    assert state.models[A].wanted_since_s is None
    assert state.models[CPU_A].in_flight == 1
    assert state.models[CPU_A].last_used_at_s == 101.0
    assert dict(state.wishes) == {A: 101.0 + MODEL_S}


def test_a_rung_that_is_not_known_leaves_the_request_with_its_model():
    state = fold(world(model(A, HOT)), received("r", A, 100.0))
    state = fold(state, replace(dispatched("r", A, 101.0), served_by=ModelId("gone")))
    assert state.models[A].in_flight == 1


# What the planner does about it


def test_a_wish_is_loaded_behind_what_is_waited_for():
    state = world(model(A), model(B, waiting=1, wanted_since_s=99.0), model(C))
    state = with_wish(state, A, 130.0)
    loads = [action for action in planned(state).actions if isinstance(action, LoadModel)]
    assert [(load.model, load.reason) for load in loads] == [(B, Reason.DEMAND), (A, Reason.DEMAND)]
    assert {load.cause for load in loads} == {LoadCause.DEMAND}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (model(A), Reason.DEMAND),
        (on_host(), Reason.CPU_FALLBACK),
        (model(made_name("a", "q4_0")), Reason.SMALLER_VARIANT),
    ],
)
def test_why_it_is_loaded(status, reason):
    assert reason_of(status) is reason


def test_a_rung_gets_room_although_its_model_waits_for_more():
    """C holds what A needs and is busy; B is idle, and enough for the rung."""
    small = model(made_name("a", "q4_0"), mb=8)
    state = world(
        model(A, mb=25, waiting=1, wanted_since_s=99.0),
        small,
        model(B, HOT, mb=10),
        model(C, HOT, mb=20, in_flight=1),
    )
    result = planned(with_wish(state, small.model, 105.0))
    assert [type(action).__name__ for action in result.actions] == ["UnloadModel", "LoadModel"]
    assert [action.model for action in result.actions] == [B, small.model]


def test_a_wish_that_gets_no_room_holds_up_nobody():
    state = world(model(A, mb=25), model(B, HOT, mb=20, in_flight=1), model(C, mb=5))
    result = planned(with_wish(state, A, 130.0))
    assert result.actions == ()
    said = {decision.subject: (decision.outcome, decision.reason) for decision in result.decisions}
    assert said[A] == (Outcome.HOLD, Reason.NO_ROOM)


@pytest.mark.parametrize("by", ["wish", "demand"])
def test_no_model_on_a_gpu_goes_for_one_on_cpus(by):
    """Neither for bytes nor for a limit on how many there may be, idle or busy."""
    fields: dict[str, Any] = {"waiting": 1, "wanted_since_s": 0.0} if by == "demand" else {}
    state = world(
        on_host(**fields),
        model(A, HOT, in_flight=1, since_s=0.0),
        model(B, HOT),
        model_limit=2,
    )
    state = with_places(with_wish(state, CPU_A, 130.0))
    result = planned(state)
    assert result.actions == ()


def test_host_memory_is_kept_to_and_another_on_cpus_may_go_for_it():
    other = model(ModelId("b--headstart-cpu"), HOT, mb=25, on_host=True)
    state = with_places(world(on_host(), other, model(A, HOT)))
    result = planned(with_wish(state, CPU_A, 130.0))
    assert [(type(one).__name__, one.model) for one in result.actions] == [
        ("UnloadModel", other.model),
        ("LoadModel", CPU_A),
    ]
    tight = with_places(world(on_host(mb=40), model(A, HOT)))
    result = planned(with_wish(tight, CPU_A, 130.0))
    assert [decision.reason for decision in result.decisions] == [Reason.NEVER_FITS]


# Who stands in


def test_a_rung_stands_in_for_a_model_that_can_get_no_place():
    state = world(model(A, mb=25, used_s=95.0), on_host(), model(B, HOT, mb=20, in_flight=1))
    after = with_stand_ins(state, LADDERS, config())
    assert dict(after.wishes) == {CPU_A: 100.0 + RUNG_S}


@pytest.mark.parametrize(
    "status",
    [
        model(A, mb=40, used_s=95.0),
        model(A, mb=40, waiting=1, wanted_since_s=99.0),
        model(A, Residency.FAILED, mb=10, used_s=95.0, out_of_memory_bytes=0),
    ],
)
def test_nor_one_that_never_fits_or_failed_for_memory(status):
    assert with_stand_ins(world(status, on_host()), LADDERS, config()).wishes


def test_a_gpu_that_was_handed_over_takes_no_model():
    wish = GpuYield(since_s=0.0, until_s=None)
    state = world(model(A, used_s=95.0), on_host(), gpu_yield=wish)
    assert with_stand_ins(state, LADDERS, config()).wishes


@pytest.mark.parametrize(
    ("state", "ladders"),
    [
        (world(model(A, used_s=95.0), on_host()), LADDERS),
        (world(model(A, mb=40), on_host()), LADDERS),
        (world(model(A, mb=40, used_s=100.0 - RECENT_S), on_host()), LADDERS),
        (world(model(A, HOT, mb=40, used_s=95.0), on_host()), LADDERS),
        (world(model(A, mb=40, used_s=95.0), on_host(), mode=Mode.OBSERVE), LADDERS),
        (world(model(A, mb=40, used_s=95.0), on_host(), alive=False), LADDERS),
        (world(model(A, mb=40, used_s=95.0), on_host()), {}),
        (world(model(A, mb=40, used_s=95.0)), LADDERS),
        (world(on_host()), LADDERS),
        (world(model(A, mb=40, used_s=95.0)), {A: Ladder(model=A, rungs=())}),
        (world(model(A, mb=25, used_s=95.0), on_host(), model(B, HOT, mb=20)), LADDERS),
        (
            world(model(A, mb=40, used_s=95.0), on_host()),
            {A: replace(LADDER, fallback=Fallback.ASK)},
        ),
    ],
)
def test_else_nobody_stands_in(state, ladders):
    assert not with_stand_ins(state, ladders, config()).wishes


def test_two_ladders_of_a_node_look_into_its_room_once():
    other = made_name("b", "cpu")
    ladders = {
        **LADDERS,
        B: Ladder(model=B, rungs=(Rung(model=other, kind=RungKind.CPU, is_made=True),)),
    }
    state = world(
        model(A, mb=40, used_s=95.0),
        model(B, mb=40, used_s=95.0),
        on_host(),
        model(other, on_host=True),
    )
    assert set(with_stand_ins(state, ladders, config()).wishes) == {CPU_A, other}


def test_a_rung_of_ours_that_nobody_needs_any_more_goes():
    idle = on_host(residency=HOT, since_s=0.0, used_s=10.0)
    now_s = 10.0 + RECENT_S
    state = world(idle, model(A, HOT, since_s=0.0), now_s=now_s)
    assert idle_stand_ins(state, state.on_node(NODE)) == (idle,)
    (action,) = planned(state).actions
    assert isinstance(action, UnloadModel)
    assert (action.model, action.reason) == (CPU_A, Reason.IDLE_TIMEOUT)
    for kept in (
        world(replace(idle, last_used_at_s=11.0), now_s=now_s),
        with_wish(state, CPU_A, now_s + 5.0),
        world(model(B, HOT, on_host=True, since_s=0.0), now_s=now_s),
    ):
        assert idle_stand_ins(kept, kept.on_node(NODE)) == ()
    # The idle time-out of the policy may be shorter: it goes once.
    actions = planned(state, policy="idle-timeout", idle_timeout_s=60.0).actions
    assert sorted(action.model for action in actions) == [A, CPU_A]
