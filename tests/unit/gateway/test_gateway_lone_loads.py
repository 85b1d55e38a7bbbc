"""Loads without a controller: one at a time, under a lock, and never in the way of anybody."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from api.gateway.admission import Admission, Ticket
from api.gateway.lone_loads import DRAIN_S, LoneLoads
from api.gateway.metrics import GatewayMetrics
from api.gateway.residency import Kind, RouteBook
from api.gateway.slots import SlotBook
from api.gateway.telemetry import Telemetry
from contracts.config import QueueConfig
from contracts.errors import HeadstartError, Permanent, Transient
from contracts.events import ModelLoadFailed, PriorityClass
from contracts.ids import GatewayId, ModelId, NodeId, RequestId
from contracts.ports import NodeReport, node_lock
from contracts.routing import ModelRoute, NodeRoute, RoutingTable
from contracts.world import Mode, Residency
from simulator.clock import settle
from simulator.memory_ports import (
    MemoryEventLog,
    MemoryLoadLock,
    MemoryModelServer,
    VirtualClock,
)

A, B, C = ModelId("a"), ModelId("b"), ModelId("c")
NODE, OTHER = NodeId("n"), NodeId("other")


class Kit:
    def __init__(self, *, locked: bool = True) -> None:
        self.clock = VirtualClock(start_s=100.0)
        self.server = MemoryModelServer(self.clock, {A: 5.0, B: 5.0, C: 5.0})
        self.other = MemoryModelServer(self.clock, {A: 5.0})
        self.lock = MemoryLoadLock(self.clock)
        self.book = RouteBook()
        self.admission = Admission(QueueConfig(), SlotBook({}))
        self.log = MemoryEventLog()
        self.telemetry = Telemetry(self.log, self.clock, "g")
        self.ends: list[tuple[ModelId, HeadstartError | None]] = []
        self.loads = LoneLoads(
            owner=GatewayId("g"),
            servers={NODE: self.server, OTHER: self.other},
            lock=self.lock if locked else None,
            book=self.book,
            admission=self.admission,
            telemetry=self.telemetry,
            metrics=GatewayMetrics(self.book.lists),
            clock=self.clock,
        )
        self.loads.on_end = lambda model, error: self.ends.append((model, error))

    def table(
        self,
        *hot: ModelId,
        made_at_s: float = 100.0,
        free_bytes: int | None = None,
        loading: ModelId | None = None,
        home: NodeId = NODE,
    ) -> None:
        self.server.resident.update(hot)
        residency = dict.fromkeys(hot, Residency.HOT)
        if loading is not None:
            residency[loading] = Residency.LOADING
        self.book.accept(
            RoutingTable(
                token=1,
                made_at_s=made_at_s,
                mode=Mode.ACTIVE,
                models={
                    model: ModelRoute(
                        model=model,
                        node=home,
                        residency=residency.get(model, Residency.COLD),
                        footprint_bytes=10,
                    )
                    for model in (A, B, C)
                },
                nodes={NODE: NodeRoute(node=NODE, alive=True, free_bytes=free_bytes)},
            )
        )

    def what(self) -> list[str]:
        return [f"{call.what} {call.model}" for call in self.server.calls]


async def test_loads_run_one_after_another_and_each_model_once():
    kit = Kit()
    kit.table()
    for model in (A, B, A, B):
        kit.loads.start(model, NODE)
    await kit.clock.advance(4.0)
    assert kit.what() == ["load_started a"]
    await kit.clock.advance(7.0)
    assert kit.what() == ["load_started a", "loaded a", "load_started b", "loaded b"]
    assert kit.ends == [(A, None), (B, None)]
    assert kit.book.standing(A, 111.0).kind is Kind.FORWARD


async def test_a_node_of_another_gateway_is_our_own_here():
    kit = Kit(locked=False)
    kit.table()
    kit.loads.start(A, NodeId("theirs"))
    await kit.clock.advance(6.0)
    assert kit.what() == ["load_started a", "loaded a"]


def known_elsewhere(kit: Kit) -> None:
    kit.table()
    table = kit.book.table
    assert table is not None
    places = {NODE: Residency.COLD, OTHER: Residency.COLD}
    route = replace(table.models[A], places=places)
    kit.book.accept(replace(table, models={**table.models, A: route}))


async def test_where_the_home_is_away_another_node_loads_it():
    kit = Kit()
    known_elsewhere(kit)
    kit.server.fault = Transient("connection refused")
    kit.loads.start(A, NODE)
    await kit.clock.advance(6.0)
    assert A in kit.other.resident
    assert kit.ends == [(A, None)]
    assert kit.book.standing(A, 106.0).node == OTHER


async def test_when_all_are_away_who_waits_is_told():
    kit = Kit()
    known_elsewhere(kit)
    kit.server.fault = kit.other.fault = Transient("connection refused")
    kit.loads.start(A, NODE)
    await kit.clock.advance(6.0)
    ((model, error),) = kit.ends
    assert (model, str(error)) == (A, "connection refused")


async def test_a_load_that_localai_failed_is_not_tried_elsewhere():
    kit = Kit()
    known_elsewhere(kit)
    kit.server.fail_loads(A, Transient("no memory", retry_after_s=10.0))
    kit.loads.start(A, NODE)
    await kit.clock.advance(6.0)
    assert kit.other.calls == []
    assert isinstance(kit.ends[0][1], Transient)


async def test_the_lock_is_kept_while_it_loads_and_given_back():
    kit = Kit()
    kit.table()
    kit.server.load_s[A] = 100.0
    kit.loads.start(A, NODE)
    for _ in range(9):
        await kit.clock.advance(10.0)
        assert not await kit.lock.take(A, "other", hold_s=1.0)
    await kit.clock.advance(11.0)
    assert await kit.lock.take(A, "other", hold_s=1.0)


async def test_the_node_is_others_again_once_a_controller_tells_of_the_load():
    """A load that hangs must not keep a whole node for as long as LocalAI may take."""
    kit = Kit()
    kit.table()
    kit.server.load_s[A] = 600.0
    kit.loads.start(A, NODE)
    await kit.clock.advance(20.0)
    assert not await kit.lock.take(node_lock(NODE), "controller", hold_s=1.0)
    kit.table(made_at_s=kit.clock.now_s())  # a leader that has not read of it yet
    await kit.clock.advance(1.0)
    assert not await kit.lock.take(node_lock(NODE), "controller", hold_s=1.0)
    kit.table(loading=A, made_at_s=kit.clock.now_s())
    await kit.clock.advance(1.0)
    assert await kit.lock.take(node_lock(NODE), "controller", hold_s=1.0)
    assert not await kit.lock.take(A, "other", hold_s=1.0), "the model's own lock is kept"
    await kit.clock.advance(600.0)
    assert kit.ends == [(A, None)]


async def test_a_load_of_the_same_model_elsewhere_is_not_this_one():
    """The leader counts its bytes there, so this node is not yet anybody else's."""
    kit = Kit()
    kit.table()
    kit.server.load_s[A] = 600.0
    kit.loads.start(A, NODE)
    await kit.clock.advance(20.0)
    kit.table(loading=A, made_at_s=kit.clock.now_s(), home=NodeId("elsewhere"))
    await kit.clock.advance(1.0)
    assert not await kit.lock.take(node_lock(NODE), "controller", hold_s=1.0)


async def test_an_old_table_of_another_load_says_nothing_of_this_one():
    kit = Kit()
    kit.table(loading=A, made_at_s=99.0)
    kit.server.load_s[A] = 600.0
    kit.loads.start(A, NODE)
    await kit.clock.advance(20.0)
    assert not await kit.lock.take(node_lock(NODE), "controller", hold_s=1.0)


async def test_what_another_gateway_has_loaded_is_not_loaded_again():
    kit = Kit()
    kit.table()
    assert await kit.lock.take(A, "other", hold_s=60.0)
    kit.loads.start(A, NODE)
    await kit.clock.advance(5.0)
    kit.table(A, made_at_s=105.0)
    await kit.clock.advance(1.0)
    assert kit.what() == []
    assert kit.ends == [(A, None)]


async def test_a_lock_that_cannot_be_asked_stops_nobody():
    kit = Kit()
    kit.table()
    kit.lock.fault = Transient("away")
    kit.server.load_s[A] = 25.0
    kit.loads.start(A, NODE)
    await kit.clock.advance(26.0)
    assert kit.ends == [(A, None)]


async def test_a_lock_that_goes_away_while_it_loads_ends_nothing():
    kit = Kit()
    kit.table()
    kit.server.load_s[A] = 25.0
    kit.loads.start(A, NODE)
    await kit.clock.advance(5.0)
    kit.lock.fault = Transient("away")
    await kit.clock.advance(21.0)
    assert kit.ends == [(A, None)]


async def test_room_is_made_of_the_idle_and_only_as_much_as_is_missing():
    kit = Kit()
    kit.table(B, C, free_bytes=0)
    kit.loads.start(A, NODE)
    await kit.clock.advance(6.0)
    assert kit.what() == ["unloaded b", "load_started a", "loaded a"]


def running(kit: Kit, model: ModelId = B) -> Ticket:
    one = Ticket(
        request_id=RequestId("r"), model=model, priority=PriorityClass.REALTIME, arrived_at_s=0.0
    )
    kit.admission.arrive(one, ready=True)
    return one


async def test_a_busy_model_goes_when_its_last_request_has_ended():
    kit = Kit()
    kit.table(B, free_bytes=0)
    one = running(kit)
    kit.loads.start(A, NODE)
    await kit.clock.advance(5.0)
    assert kit.what() == []
    assert kit.book.standing(B, 105.0).kind is Kind.WAIT, "it takes nothing new"
    kit.admission.end(one)
    await kit.clock.advance(6.0)
    assert kit.what() == ["unloaded b", "load_started a", "loaded a"]


async def test_but_is_left_alone_when_it_does_not_end():
    kit = Kit()
    kit.table(B, C, free_bytes=0)
    kit.server.busy.add(C)
    running(kit)
    kit.loads.start(A, NODE)
    await kit.clock.advance(DRAIN_S + 6.0)
    # B runs here, and LocalAI says that C is busy for somebody else: it is tried all the same.
    assert kit.what() == ["load_started a", "loaded a"]
    assert kit.book.standing(C, 170.0).kind is Kind.FORWARD
    assert kit.book.standing(B, 170.0).kind is Kind.FORWARD


async def test_what_was_loaded_a_moment_ago_keeps_its_place_for_a_turn():
    kit = Kit()
    kit.table(free_bytes=10)
    kit.loads.start(B, NODE)
    await kit.clock.advance(5.0)
    one = running(kit)
    kit.loads.start(A, NODE)
    await kit.clock.advance(14.0)
    assert kit.book.standing(B, 119.0).kind is Kind.FORWARD
    await kit.clock.advance(1.5)
    assert kit.book.standing(B, 120.5).kind is Kind.WAIT
    kit.admission.end(one)
    await kit.clock.advance(6.0)
    assert kit.what()[2:] == ["unloaded b", "load_started a", "loaded a"]


async def test_the_most_due_model_is_loaded_next():
    kit = Kit()
    kit.table()
    kit.loads.start(A, NODE)
    await settle()
    for model, at_s in ((B, 9.0), (C, 3.0)):
        one = Ticket(
            request_id=RequestId(model),
            model=model,
            priority=PriorityClass.REALTIME,
            arrived_at_s=at_s,
        )
        kit.admission.arrive(one, ready=False)
        kit.loads.start(model, NODE)
    await kit.clock.advance(16.0)
    assert [what for what in kit.what() if "started" in what] == [
        "load_started a",
        "load_started c",
        "load_started b",
    ]


@pytest.mark.parametrize("error", [Permanent("no such model"), Transient("refused")])
async def test_a_failure_without_a_cool_down_is_told_and_not_remembered(error):
    kit = Kit()
    kit.table()
    kit.server.fail_loads(A, error)
    kit.loads.start(A, NODE)
    await kit.clock.advance(6.0)
    assert kit.ends == [(A, error)]
    assert kit.book.standing(A, 106.0).kind is Kind.WAIT
    await kit.telemetry.close()
    last = [entry.value for entry in await kit.log.read_after("0", count=10)][-1]
    assert isinstance(last, ModelLoadFailed)
    assert (last.error, last.retry_after_s) == (str(error), None)


async def test_at_the_end_loads_are_let_end():
    kit = Kit()
    kit.table()
    kit.loads.start(A, NODE)
    await settle()
    closing = asyncio.create_task(kit.loads.close(30.0))
    await kit.clock.advance(6.0)
    await closing
    assert kit.what() == ["load_started a", "loaded a"]


async def test_and_cut_off_only_past_the_grace():
    kit = Kit()
    kit.table()
    kit.server.load_s[A] = 500.0
    kit.loads.start(A, NODE)
    await settle()
    closing = asyncio.create_task(kit.loads.close(30.0))
    await kit.clock.advance(31.0)
    await closing
    assert kit.what() == ["load_started a", "load_failed a"]
    await kit.loads.close(1.0)


class Rounding(MemoryModelServer):
    """Tells the rest of a cool-down in whole seconds, as LocalAI does."""

    async def load(self, model: ModelId) -> None:
        try:
            await super().load(model)
        except Transient as error:
            rest_s = float(int(error.retry_after_s or 0.0))
            raise Transient(str(error), retry_after_s=rest_s) from None


async def test_a_load_that_was_cut_off_is_tried_until_the_cool_down_is_really_over():
    kit = Kit()
    kit.table()
    server = Rounding(kit.clock, {A: 5.0})
    server.fail_loads(A, Transient("context canceled", retry_after_s=9.9))
    kit.loads._servers = {NODE: server}
    kit.book.note_interrupted(A, kit.clock.now_s())
    kit.loads.start(A, NODE)
    for _ in range(60):
        await settle()
        await kit.clock.advance(0.5)
    await settle()
    assert kit.ends == [(A, None)]
    assert [call.what for call in server.calls][-2:] == ["load_started", "loaded"]


async def test_a_load_that_was_not_cut_off_fails_at_once():
    kit = Kit()
    kit.table()
    kit.server.fail_loads(A, Transient("out of memory", retry_after_s=10.0))
    kit.loads.start(A, NODE)
    await settle()
    await kit.clock.advance(6.0)
    await settle()
    ((model, error),) = kit.ends
    assert model == A
    assert isinstance(error, Transient)


async def test_a_load_that_a_controller_will_do_is_left_to_it():
    kit = Kit()
    kit.table()
    kit.loads.is_due = lambda model: model == B
    kit.loads.start(A, NODE)
    kit.loads.start(B, NODE)
    await kit.clock.advance(11.0)
    assert kit.what() == ["load_started b", "loaded b"]
    assert kit.ends == [(A, None), (B, None)]


async def test_a_controller_that_is_back_while_room_is_made_does_what_is_left():
    kit = Kit()
    kit.table(B, free_bytes=0)
    asked = iter((True, True, False))
    kit.loads.is_due = lambda _model: next(asked)
    kit.loads.start(A, NODE)
    await kit.clock.advance(11.0)
    assert kit.what() == ["unloaded b"]


async def test_while_somebody_else_loads_on_the_node_nothing_begins_there():
    kit = Kit()
    kit.table()
    await kit.lock.take(node_lock(NODE), "another", hold_s=30.0)
    kit.loads.start(A, NODE)
    await kit.clock.advance(5.0)
    assert kit.what() == []
    await kit.lock.release(node_lock(NODE), "another")
    await kit.clock.advance(7.0)
    assert kit.what() == ["load_started a", "loaded a"]


async def test_what_others_have_loaded_meanwhile_counts_before_room_is_made():
    kit = Kit()
    kit.table(free_bytes=10)
    kit.server.resident.add(C)
    kit.loads.start(A, NODE)
    await kit.clock.advance(7.0)
    assert kit.what() == ["unloaded c", "load_started a", "loaded a"]


async def test_a_node_that_cannot_be_looked_at_is_loaded_on_all_the_same():
    kit = Kit()
    kit.table()

    async def silent() -> NodeReport:
        raise Transient("no answer")

    kit.server.report = silent  # type: ignore[method-assign]
    kit.loads.start(A, NODE)
    await kit.clock.advance(7.0)
    assert kit.what() == ["load_started a", "loaded a"]


async def test_a_model_that_was_moved_while_it_waited_is_loaded_where_it_is_now():
    kit = Kit()
    known_elsewhere(kit)
    kit.loads.start(B, NODE)
    kit.loads.start(A, NODE)
    await kit.clock.advance(1.0)
    table = kit.book.table
    assert table is not None
    moved = replace(table.models[A], node=OTHER)
    kit.book.accept(replace(table, made_at_s=101.0, models={**table.models, A: moved}))
    await kit.clock.advance(12.0)
    assert kit.what() == ["load_started b", "loaded b"]
    assert [f"{call.what} {call.model}" for call in kit.other.calls] == [
        "load_started a",
        "loaded a",
    ]
