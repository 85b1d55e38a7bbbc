"""Field reports on configurations, where the outcome is the plan's: limits, others' memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.errors import Permanent
from contracts.events import AnyEvent, NodeLost, NodeObserved
from contracts.plan import LoadModel, PlannerState, UnloadModel
from contracts.world import Residency
from controller.memory import usable_bytes
from controller.planner import plan
from tests.worlds import MIB, NODE, A, B, C, config, curve, model, world

COLD, HOT = Residency.COLD, Residency.HOT


def orders(w, *forecasts, policy="headstart"):
    result = plan(
        world=w,
        forecasts={forecast.model: forecast for forecast in forecasts},
        state=PlannerState(),
        config=config(policy, just_in_time=False),
    )
    return [
        ("load", action.model, action.after)
        if isinstance(action, LoadModel)
        else ("unload", action.model)
        for action in result.plan.actions
        if isinstance(action, LoadModel | UnloadModel)
    ]


@pytest.mark.case("config-08")
def test_where_one_model_may_be_loaded_a_prefetch_costs_the_one_that_is():
    likely, rare = curve(A, {20.0: 3.0}), curve(B, {3600.0: 0.01})
    w = world(model(A), model(B, HOT, used_s=1.0), mb=900, model_limit=1)
    assert orders(w, likely, rare) == [("unload", B), ("load", A, (B,))]
    # As likely to be used as A: nothing is gained, although there is memory for both.
    assert orders(w, likely, curve(B, {20.0: 3.0})) == []
    assert orders(replace(w, nodes=world(model(A), mb=900).nodes), likely, rare) == [
        ("load", A, ())
    ]


@pytest.mark.case("config-17")
def test_what_others_hold_is_neither_free_nor_to_be_sent_away():
    w = world(model(A, waiting=1, wanted_since_s=99.0, mb=20), model(B, HOT), mb=50)
    node = replace(w.nodes[NODE], used_by_others_bytes=25 * MIB)
    held = replace(w, nodes={NODE: node})
    assert usable_bytes(node, config()) == 25 * MIB
    assert orders(w) == [("load", A, ())]
    assert orders(held) == [("unload", B), ("load", A, (B,))]
    more = replace(node, used_by_others_bytes=35 * MIB)
    assert orders(replace(w, nodes={NODE: more})) == []


@pytest.mark.case("config-07")
def test_a_model_on_the_cpu_needs_no_gpu_memory():
    cpu = model(A, waiting=1, wanted_since_s=99.0, mb=25, on_host=True)
    w = world(cpu, model(B, HOT), model(C, HOT))
    w = replace(w, nodes={NODE: replace(w.nodes[NODE], accelerator="cuda")})
    assert orders(w) == [("load", A, ())]


@pytest.mark.case("config-07")
async def test_a_node_that_asks_for_a_key_is_away_until_it_is_answered_again():
    from controller.observer import Observer
    from simulator.memory_ports import MemoryModelServer, VirtualClock
    from tests.worlds import stamp

    clock = VirtualClock()
    server = MemoryModelServer(clock, {})
    events: list[AnyEvent] = []
    observer = Observer(
        NODE,
        server,
        clock=clock,
        poll_s=5.0,
        stamp=lambda: stamp(clock.now_s(), "controller"),
        emit=events.append,
        listed=lambda _catalogue: None,
    )
    import asyncio

    server.fault = Permanent("401 key needed")
    task = asyncio.create_task(observer.run())
    await clock.advance(11.0)
    server.fault = None
    await clock.advance(6.0)
    task.cancel()
    kinds = [type(event) for event in events]
    assert kinds[0] is NodeLost
    assert kinds.count(NodeLost) == 1
    assert kinds[-1] is NodeObserved
