"""Many models on many nodes: traffic, loads and looks as the benchmark of scale plays them."""

from __future__ import annotations

import pytest

from contracts.events import (
    ActionFailed,
    LoadCause,
    ModelLoaded,
    ModelLoadStarted,
    ModelUnloaded,
    NodeObserved,
    UnloadCause,
)
from contracts.plan import LoadModel, UnloadModel
from contracts.reasons import Reason
from contracts.world import Residency
from simulator.scale_fleet import POLL_S, ScaleFleet, ScaleSize

SIZE = ScaleSize(models=20, nodes=4, requests_per_s=50.0, listed_on=2)


def fleet(size: ScaleSize = SIZE) -> ScaleFleet:
    return ScaleFleet(size, seed=1, start_s=0.0, reserve_ratio=0.2)


def load(model, node) -> LoadModel:
    return LoadModel(
        action_id="l", model=model, node=node, cause=LoadCause.DEMAND, reason=Reason.DEMAND
    )


def unload(model, node) -> UnloadModel:
    return UnloadModel(
        action_id="u",
        model=model,
        node=node,
        cause=UnloadCause.EVICTED,
        reason=Reason.LEAST_RECENTLY_USED,
    )


def test_busy_models_are_resident_and_each_is_listed_by_some_nodes():
    world = fleet().world()
    hot = [status for status in world.models.values() if status.residency is Residency.HOT]
    assert len(hot) == 12
    listed = [name for node in world.nodes.values() for name in node.lists]
    assert all(listed.count(name) == 2 for name in world.models)
    everywhere = fleet(ScaleSize(models=20, nodes=4)).world()
    assert all(len(node.lists) == 20 for node in everywhere.nodes.values())


def test_traffic_is_drawn_from_the_seed_in_order_and_mostly_for_busy_models():
    asks = fleet().asks(10.0, 40.0)
    assert [ask.at_s for ask in asks] == sorted(ask.at_s for ask in asks)
    assert len(asks) == pytest.approx(2000, rel=0.1)
    assert all(10.0 < ask.at_s < 50.0 and ask.first_s < ask.service_s for ask in asks)
    assert fleet().asks(10.0, 40.0) == asks
    busy = set(fleet().models[:12])
    assert sum(ask.model in busy for ask in asks) > 0.99 * len(asks)


def test_a_load_takes_its_time_and_is_seen():
    one = fleet()
    model, node = one.models[-1], one.nodes[0]
    (begun,) = one.order([load(model, node)], 5.0)
    assert isinstance(begun, ModelLoadStarted)
    assert not any(isinstance(event, ModelLoaded) for event in one.pass_time(5.5))
    assert isinstance(one.order([load(model, node)], 6.0)[0], ActionFailed)
    assert isinstance(one.order([unload(model, node)], 6.0)[0], ActionFailed)
    (loaded,) = (event for event in one.pass_time(60.0) if isinstance(event, ModelLoaded))
    assert (loaded.model, loaded.node) == (model, node)
    assert loaded.at_s == pytest.approx(5.0 + (loaded.load_s or 0.0))
    assert one.world().models[model].residency is Residency.HOT
    assert one.loads == 1


def test_what_serves_is_not_unloaded_and_what_does_not_fit_is_not_loaded():
    one = fleet()
    busy, home = one.models[0], one.nodes[0]
    one.sent(busy, by=1)
    assert isinstance(one.order([unload(busy, home)], 1.0)[0], ActionFailed)
    one.sent(busy, by=-1)
    told = [one.order([load(model, home)], 1.0)[0] for model in one.models[12:]]
    assert any(isinstance(event, ActionFailed) for event in told)
    assert isinstance(one.order([unload(busy, home)], 1.0)[0], ModelUnloaded)
    assert one.world().models[busy].residency is Residency.COLD


def test_every_node_is_looked_at_once_in_a_while():
    one = fleet()
    seen = [
        event.node
        for second in range(round(POLL_S))
        for event in one.pass_time(float(second))
        if isinstance(event, NodeObserved)
    ]
    assert sorted(seen) == sorted(one.nodes)
