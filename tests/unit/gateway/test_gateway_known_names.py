"""Names with a slash are looked up before LocalAI would start every backend with them."""

from __future__ import annotations

import asyncio

import pytest

from api.gateway.known_names import HOLDS_S, KnownNames
from api.gateway.problems import Problem
from api.gateway.residency import RouteBook
from contracts.errors import Transient
from contracts.ids import ModelId, NodeId
from contracts.routing import ModelRoute, RoutingTable
from contracts.world import Mode, Residency
from simulator.clock import VirtualClock
from simulator.memory_ports import MemoryModelServer

NODE = NodeId("n")
KNOWN, NEW, TYPO = ModelId("org/a"), ModelId("org/new"), ModelId("org/typo")


class Desk:
    def __init__(self) -> None:
        self.clock = VirtualClock(1000.0)
        self.server = MemoryModelServer(
            self.clock, {ModelId("a"): 1.0, NEW: 1.0}, aliases={"short/cut": ModelId("a")}
        )
        self.asked = 0
        self.book = RouteBook()
        self.names = KnownNames(book=self.book, servers={NODE: self.server}, clock=self.clock)
        models = self.server.models

        async def counted():
            self.asked += 1
            return await models()

        self.server.models = counted  # type: ignore[method-assign]  # counts

    def table(self) -> None:
        route = ModelRoute(model=KNOWN, node=NODE, residency=Residency.COLD)
        self.book.accept(
            RoutingTable(
                token=1,
                made_at_s=1000.0,
                mode=Mode.ACTIVE,
                models={KNOWN: route},
                nodes={},
                draining={},
                aliases={"al/ias": KNOWN},
            )
        )


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_what_localai_checks_itself_is_not_looked_up(desk):
    for name in (None, ModelId(""), ModelId("typo")):
        await desk.names.check(name)
    assert desk.asked == 0


async def test_what_the_table_names_is_not_looked_up(desk):
    desk.table()
    await desk.names.check(KNOWN)
    await desk.names.check(ModelId("al/ias"))
    assert desk.asked == 0


async def test_what_nobody_lists_is_not_found(desk):
    with pytest.raises(Problem) as refused:
        await desk.names.check(TYPO)
    problem = refused.value
    assert (problem.status, problem.type) == (404, "invalid_request_error")
    assert 'model "org/typo" not found' in problem.message


async def test_what_came_just_now_and_an_alias_pass(desk):
    await desk.names.check(NEW)
    await desk.names.check(ModelId("short/cut"))


async def test_a_flood_of_typos_is_one_look(desk):
    async def typo(number: int) -> None:
        with pytest.raises(Problem):
            await desk.names.check(ModelId(f"org/{number}"))

    await asyncio.gather(*(typo(number) for number in range(50)))
    assert desk.asked == 1
    await desk.clock.advance(HOLDS_S)
    await typo(1)
    assert desk.asked == 2


async def test_where_localai_does_not_tell_it_judges_the_name_itself(desk):
    desk.server.fault = Transient("401")
    await desk.names.check(TYPO)
    desk.server.fault = None
    await desk.clock.advance(HOLDS_S)
    desk.server.load_s.clear()
    desk.server._aliases.clear()
    await desk.names.check(TYPO)


async def test_one_that_takes_too_long_is_not_waited_for(desk):
    async def slow():
        await desk.clock.sleep(100.0)
        return ()

    desk.server.models = slow
    checking = asyncio.create_task(desk.names.check(TYPO))
    await desk.clock.advance(6.0)
    await checking
