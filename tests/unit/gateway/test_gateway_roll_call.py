"""What each node lists, asked by the gateway itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from structlog.testing import capture_logs

from api.gateway.residency import RouteBook
from api.gateway.roll_call import EVERY_S, OLD_TABLE_S, RollCall
from api.gateway.standings import Copy
from contracts.errors import Transient
from contracts.ids import ModelId, NodeId
from contracts.routing import RoutingTable
from contracts.world import Mode
from simulator.clock import VirtualClock
from simulator.memory_ports import MemoryModelServer

ONE, TWO = NodeId("one"), NodeId("two")
A, B, C = (ModelId(name) for name in "abc")


class Site:
    def __init__(self) -> None:
        self.clock = VirtualClock(1_000.0)
        self.servers = {
            ONE: MemoryModelServer(self.clock, {A: 1.0, B: 1.0}),
            TWO: MemoryModelServer(self.clock, {B: 1.0, C: 1.0}),
        }
        self.book = RouteBook()
        self.roll = RollCall(
            servers=self.servers, primary=lambda: TWO, book=self.book, clock=self.clock
        )

    def accept(self) -> None:
        now_s = self.clock.now_s()
        self.book.accept(RoutingTable(token=1, made_at_s=now_s, mode=Mode.ACTIVE))


@asynccontextmanager
async def running(site: Site) -> AsyncIterator[None]:
    (job,) = site.roll.jobs()
    task = asyncio.ensure_future(job())
    await site.clock.advance(0.0)
    yield
    task.cancel()
    await asyncio.wait({task})


async def test_it_knows_who_lists_what_and_what_is_resident():
    site = Site()
    site.servers[ONE].resident.add(B)
    assert site.roll.copies(A) == ()
    async with running(site):
        assert site.roll.copies(A) == (Copy(node=ONE, is_home=True, is_resident=False),)
        assert site.roll.copies(B) == (
            Copy(node=ONE, is_home=False, is_resident=True),
            Copy(node=TWO, is_home=True, is_resident=False),
        )
        assert site.roll.copies(ModelId("x")) == ()


async def test_it_asks_again_now_and_then_and_when_something_was_not_known():
    site = Site()
    async with running(site):
        site.servers[TWO].load_s[A] = 1.0
        await site.clock.advance(EVERY_S - 1.0)
        assert len(site.roll.copies(A)) == 1
        await site.clock.advance(1.0)
        assert len(site.roll.copies(A)) == 2
        del site.servers[TWO].load_s[A]
        for _ in range(5):
            site.roll.ask_now()
        await site.clock.advance(1.0)
        assert len(site.roll.copies(A)) == 1


async def test_while_a_controller_tells_nobody_is_asked():
    site = Site()
    site.accept()
    async with running(site):
        await site.clock.advance(OLD_TABLE_S)
        assert site.roll.copies(A) == ()
        await site.clock.advance(EVERY_S)
        assert site.roll.copies(A)


async def test_who_does_not_answer_keeps_what_it_listed():
    site = Site()
    with capture_logs() as logs:
        async with running(site):
            site.servers[ONE].fault = Transient("connection refused")
            await site.clock.advance(3 * EVERY_S)
            assert len(site.roll.copies(A)) == 1
            site.servers[ONE].fault = None
            await site.clock.advance(EVERY_S)
    assert [line["event"] for line in logs] == [
        "roll_call_unanswered",
        "roll_call_unanswered_ended",
    ]


def test_one_node_is_not_asked():
    site = Site()
    alone = RollCall(
        servers={ONE: site.servers[ONE]}, primary=lambda: ONE, book=site.book, clock=site.clock
    )
    assert alone.jobs() == ()


async def test_what_a_node_listed_goes_with_it_and_an_answer_that_is_late_is_not_kept():
    site = Site()
    async with running(site):
        gone = site.servers.pop(ONE)
        site.roll.forget(ONE)
        assert site.roll.copies(A) == ()
        site.servers[ONE] = gone
        asking = asyncio.ensure_future(site.roll._ask(ONE))
        await asyncio.sleep(0)
        del site.servers[ONE]
        await asking
        assert site.roll.copies(A) == ()
