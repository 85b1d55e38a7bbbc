"""Rungs are made through the port of LocalAI's model files, and gateways are told of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest
import structlog

from contracts.config import ControllerConfig, ModelProfile
from contracts.errors import Transient
from contracts.ids import ModelId, NodeId
from contracts.plan import Outcome, PlannerState
from contracts.reasons import Reason
from contracts.routing import ModelRoute, RoutingTable
from contracts.variants import Ladder, LadderOptions, Rung, RungKind, made_name
from contracts.world import Mode, Residency
from controller.ladder_book import CHECK_S, RETRY_S, LadderBook
from controller.ports import Ports
from simulator.clock import VirtualClock
from tests.controller_stage import Stage
from tests.worlds import NODE, A, B, config, model, world

CPU_NAME = made_name("a", "cpu")
CPU = Rung(model=CPU_NAME, kind=RungKind.CPU, is_made=True, gpu_layers=0)
LADDERS = {A: Ladder(model=A, rungs=(CPU,))}


class MemoryModelFiles:
    """``contracts.variants.ModelFiles`` in memory."""

    def __init__(self, **files: Mapping[str, object]) -> None:
        self.files = {ModelId(name): dict(document) for name, document in files.items()}
        self.writes = 0
        self.fault: Transient | None = None

    async def names(self) -> tuple[ModelId, ...]:
        return tuple(sorted(self.files))

    async def read(self, model: ModelId) -> Mapping[str, object] | None:
        if self.fault is not None:
            raise self.fault
        return self.files.get(model)

    async def write(self, document: Mapping[str, object]) -> None:
        self.writes += 1
        self.files[ModelId(str(document["name"]))] = dict(document)

    async def remove(self, model: ModelId) -> None:
        self.files.pop(model, None)


class House:
    """One book over one node, on a clock of the test's own."""

    def __init__(self, *, orders: bool = True, **options: object) -> None:
        self.clock = VirtualClock(1000.0)
        self.files = MemoryModelFiles(a={"name": "a", "parameters": {"model": "a.gguf"}})
        self.made: list[NodeId] = []
        self.orders = orders
        stage = Stage()
        self.config = replace(ControllerConfig(ladders=LADDERS), **options)  # type: ignore[arg-type]  # the test's own
        self.book = LadderBook(self.config, self._ports(stage), lambda: self.orders)

    def _ports(self, stage: Stage):

        return Ports(
            clock=self.clock,
            events=stage.events,
            to_controller=stage.to_controller,
            to_gateways=stage.to_gateways,
            forecasts=stage.forecasts,
            journal=stage.journal,
            controls=stage.controls,
            snapshots=stage.snapshots,
            lease=stage.lease,
            servers={NODE: stage.server},
            model_files={NODE: self.files},
            weights_found=lambda: ("a.Q4_K_M.gguf",),
        )

    def lists(self, *models: ModelId, **profiles: ModelProfile) -> None:
        self.book.listed(NODE, models, {ModelId(name): p for name, p in profiles.items()})


@pytest.fixture
async def running():
    tasks = []

    def start(house: House) -> None:
        tasks.append(asyncio.create_task(house.book.run(house.made.append)))

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_rung_is_made_as_soon_as_its_model_is_listed(running):
    house = House()
    running(house)
    await house.clock.advance(1.0)
    assert house.files.writes == 0
    house.lists(A, B)
    await house.clock.advance(0.1)
    assert house.files.files[CPU_NAME]["gpu_layers"] == 0
    assert house.made == [NODE]
    # It is listed, and as it should be: nothing is written again.
    house.lists(A, B, CPU_NAME)
    await house.clock.advance(2 * CHECK_S)
    assert house.files.writes == 1


async def test_it_is_made_anew_when_the_models_own_file_has_changed(running):
    house = House()
    running(house)
    house.lists(A)
    await house.clock.advance(0.1)
    house.lists(A, CPU_NAME)
    house.files.files[A]["context_size"] = 512
    await house.clock.advance(CHECK_S + 1.0)
    assert house.files.writes == 2
    assert house.files.files[CPU_NAME]["context_size"] == 512


async def test_a_file_of_somebody_else_is_left_alone(running):
    house = House()
    house.files.files[CPU_NAME] = {"name": CPU_NAME, "gpu_layers": 3}
    with structlog.testing.capture_logs() as logs:
        running(house)
        house.lists(A, CPU_NAME)
        await house.clock.advance(3 * CHECK_S)
    assert house.files.writes == 0
    assert [line["event"] for line in logs] == ["variant_not_ours"]


async def test_nothing_is_made_while_nothing_is_ordered_nor_of_a_model_without_a_file(running):
    house = House(orders=False)
    running(house)
    house.lists(A)
    await house.clock.advance(2 * CHECK_S)
    assert house.files.writes == 0
    house.orders = True
    del house.files.files[A]
    house.lists(A)
    await house.clock.advance(CHECK_S)
    assert house.files.writes == 0


async def test_orders_that_end_while_files_are_read_end_the_making(running):
    house = House()
    answers = iter([True, False])
    house.book._orders = lambda: next(answers, False)
    running(house)
    house.lists(A)
    await house.clock.advance(1.0)
    assert house.files.writes == 0


async def test_a_localai_that_is_away_is_asked_again_and_told_of_once(running):
    house = House()
    house.files.fault = Transient("away")
    with structlog.testing.capture_logs() as logs:
        running(house)
        house.lists(A)
        await house.clock.advance(3 * RETRY_S)
        house.files.fault = None
        await house.clock.advance(RETRY_S)
    assert [line["event"] for line in logs] == [
        "variants_stalled",
        "variant_made",
        "variants_resumed",
    ]


async def test_what_an_option_gives_is_made_once_somebody_asks_for_the_model(running):
    house = House(ladders={}, ladder_options=LadderOptions(smaller_files=True))
    running(house)
    house.lists(A, a=ModelProfile(model=A, weights=("a.Q8_0.gguf",)))
    await house.clock.advance(2 * CHECK_S)
    assert house.files.writes == 0
    house.book.prepared(world(model(A)), config())
    await house.clock.advance(0.1)
    assert house.files.writes == 0
    house.book.prepared(world(model(A, used_s=99.0)), config())
    house.book.prepared(world(model(A, used_s=99.0)), config())
    await house.clock.advance(0.1)
    assert set(house.files.files) == {A, made_name("a", "q4_k_m")}


async def test_a_new_configuration_has_new_ladders(running):
    house = House(ladders={}, ladder_options=LadderOptions(smaller_files=True))
    running(house)
    house.lists(A, a=ModelProfile(model=A, weights=("a.Q8_0.gguf",)))
    await house.clock.advance(0.1)
    assert [str(rung.model) for rung in house.book.ladders[A].rungs] == [made_name("a", "q4_k_m")]
    house.book.reconfigure(replace(house.config, ladders=LADDERS))
    await house.clock.advance(0.1)
    assert house.book.ladders == LADDERS
    assert CPU_NAME in house.files.files


def test_gateways_are_told_of_ladders_and_of_what_holds_their_models():
    house = House()
    house.lists(A, CPU_NAME)
    state = world(model(A), model(CPU_NAME), model(B))
    table = RoutingTable(
        token=1,
        made_at_s=100.0,
        mode=Mode.ACTIVE,
        models={
            name: ModelRoute(model=name, node=NODE, residency=Residency.COLD)
            for name in (A, B, CPU_NAME)
        },
    )
    said: dict[str, tuple[Outcome, Reason]] = {
        A: (Outcome.HOLD, Reason.NO_ROOM),
        B: (Outcome.HOLD, Reason.NO_ROOM),
        CPU_NAME: (Outcome.CHANGE, Reason.CPU_FALLBACK),
    }
    shown = house.book.shown(table, state, PlannerState(last_said=said))
    assert shown.ladders == LADDERS
    assert {name: route.held for name, route in shown.models.items()} == {
        A: Reason.NO_ROOM,
        B: None,
        CPU_NAME: None,
    }
    bare = house.book.shown(table, world(model(A)), PlannerState(last_said=said))
    assert bare is table


def test_without_ladders_the_world_stays_as_it_is():
    house = House(ladders={})
    state = world(model(A))
    assert house.book.prepared(state, config()) is state
    house = House()
    house.lists(A, CPU_NAME)
    state = world(model(A, mb=40, used_s=99.0), model(CPU_NAME))
    prepared = house.book.prepared(state, config())
    assert prepared.models[CPU_NAME].on_host
    assert CPU_NAME in prepared.wishes
