"""A model that LocalAI lists although its process is dead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from api.gateway.first_words import BegunAnswer
from api.gateway.ghosts import Ghost, GhostDesk, clear_ghost, names_a_ghost
from api.gateway.residency import RouteBook
from api.gateway.standings import Kind
from contracts.errors import Transient
from contracts.ids import GatewayId, ModelId, NodeId
from contracts.messages import GhostSeen, ToController
from contracts.routing import ModelRoute, RoutingTable
from contracts.world import Mode, Residency
from simulator.clock import VirtualClock
from simulator.memory_ports import MemoryMailbox, MemoryModelServer

NODE = NodeId("one")
A = ModelId("a")
SAID = (
    b'{"error":{"code":500,"message":"rpc error: code = Unavailable desc = connection error: '
    b'desc = \\"transport: Error while dialing: dial tcp 127.0.0.1:44571: connect: connection '
    b'refused\\"","type":""}}'
)


class TestWords:
    @pytest.mark.parametrize(
        ("status", "said"),
        [(500, SAID), (200, b"data: " + SAID + b"\n\n"), (200, b"event: error\ndata: " + SAID)],
    )
    def test_a_ghost_is_known_by_what_is_said_of_it(self, status, said):
        assert names_a_ghost(status, said)

    @pytest.mark.parametrize(
        ("status", "said"),
        [
            (500, None),
            (500, b'{"error":{"message":"rpc error: code = Unknown desc = EOF"}}'),
            (500, b'{"error":{"message":"the tool said: connection refused"}}'),
            (404, SAID),
            (200, b'data: {"choices":[{"delta":{"content":"connect: connection refused"}}]}'),
            (200, SAID),
        ],
    )
    def test_other_errors_are_none(self, status, said):
        assert not names_a_ghost(status, said)


class Site:
    def __init__(self, *, mode: Mode | None = Mode.ACTIVE, with_mailbox: bool = True) -> None:
        self.clock = VirtualClock(1_000.0)
        self.server = MemoryModelServer(self.clock, {A: 1.0}, unload_s=2.0)
        self.server.resident.add(A)
        self.server.kill_process(A)
        self.book = RouteBook()
        self.mailbox: MemoryMailbox[ToController] = MemoryMailbox(clock=self.clock)
        if mode is not None:
            route = ModelRoute(model=A, node=NODE, residency=Residency.HOT)
            self.book.accept(RoutingTable(token=1, made_at_s=999.0, mode=mode, models={A: route}))
        self.desk = GhostDesk(
            gateway=GatewayId("gw"),
            book=self.book,
            servers={NODE: self.server},
            to_controller=self.mailbox if with_mailbox else None,
            clock=self.clock,
        )

    async def sent(self):
        _, messages = await self.mailbox.receive("0", block_s=0.0)
        return messages


class TestWithAController:
    async def test_it_is_told_and_the_request_waits(self):
        site = Site()
        assert await site.desk.may_send_again(A, NODE)
        assert site.book.standing(A, 1_000.0).kind is Kind.WAIT
        assert await site.sent() == (
            GhostSeen(gateway=GatewayId("gw"), model=A, node=NODE, at_s=1_000.0),
        )

    async def test_without_one_that_hears_the_load_alone_clears_it(self):
        site = Site(with_mailbox=False)
        assert await site.desk.may_send_again(A, NODE)
        assert site.book.is_ghost(A)
        away = Site()
        away.mailbox.fault = Transient("the store is away")
        with capture_logs() as logs:
            assert await away.desk.may_send_again(A, NODE)
        assert logs[0]["event"] == "ghost_not_told"

    async def test_in_observe_nothing_is_done(self):
        site = Site(mode=Mode.OBSERVE)
        assert not await site.desk.may_send_again(A, NODE)
        assert await site.sent() == ()
        assert not site.book.is_ghost(A)

    async def test_nor_for_what_no_table_lists(self):
        site = Site()
        assert not await site.desk.may_send_again(ModelId("b"), NODE)
        assert not await site.desk.may_send_again(None, NODE)


class TestAlone:
    async def test_it_is_cleared_here_once_for_all_who_met_it(self):
        site = Site(mode=None)
        waiting = [asyncio.ensure_future(site.desk.may_send_again(A, NODE)) for _ in range(3)]
        await site.clock.advance(2.0)
        assert [await each for each in waiting] == [True, True, True]
        assert [call.what for call in site.server.calls] == ["unloaded"]
        assert A not in site.server.resident

    async def test_a_live_process_is_left_alone(self):
        site = Site(mode=None)
        site.server.dead.clear()
        assert not await site.desk.may_send_again(A, NODE)
        assert A in site.server.resident

    async def test_a_localai_that_is_away_is_nothing_to_wait_for(self):
        site = Site(mode=None)
        site.server.fault = Transient("connection refused")
        with capture_logs() as logs:
            assert not await site.desk.may_send_again(A, NODE)
        assert logs[0]["event"] == "ghost_not_cleared"

    async def test_a_node_of_others_is_not_ours_to_clear(self):
        assert not await clear_ghost({}, A, NODE)


class _Answer:
    status = 500
    headers: tuple[tuple[bytes, bytes], ...] = ()
    is_complete = False

    def rest(self) -> bytes | None:
        return None

    async def pour(self, sink: Callable[[bytes], bool]) -> None:
        raise AssertionError("nobody asks this here")

    async def read(self) -> bytes:
        return SAID

    def close(self) -> None:
        pass


class TestMet:
    async def begun(self, *, is_done=True):
        answer = _Answer()
        first = asyncio.ensure_future(answer.read())
        if is_done:
            await asyncio.wait({first})
        return BegunAnswer(answer, first)

    async def test_a_request_that_met_one_may_go_again(self):
        assert await Site().desk.met(A, NODE, await self.begun()) == Ghost()

    async def test_unless_nothing_can_be_done_about_it(self):
        site = Site(mode=Mode.OBSERVE)
        assert await site.desk.met(A, NODE, await self.begun()) is None

    async def test_an_answer_that_was_not_looked_at_is_relayed(self):
        site = Site()
        assert await site.desk.met(A, NODE, _Answer()) is None
        unsaid = await self.begun(is_done=False)
        assert await site.desk.met(A, NODE, unsaid) is None
        unsaid.close()
        assert await site.desk.met(A, None, await self.begun()) is None

    async def test_what_was_read_is_said_no_more(self):
        begun = await self.begun()
        assert begun.said == SAID
        assert await begun.read() == SAID
        assert begun.said is None
