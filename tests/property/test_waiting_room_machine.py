"""The waiting room in virtual time, whatever comes in whatever order."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from api.gateway.admission import Admission
from api.gateway.live import LiveConfig
from api.gateway.lone_loads import LoneLoads
from api.gateway.metrics import GatewayMetrics
from api.gateway.passes import Pass, Waiter
from api.gateway.problems import Problem
from api.gateway.residency import RouteBook
from api.gateway.slots import SlotBook
from api.gateway.telemetry import Telemetry
from api.gateway.waiting_room import WaitingRoom
from contracts.config import GatewayConfig, NodeConfig, QueueConfig
from contracts.events import PriorityClass
from contracts.ids import GatewayId, ModelId, NodeId, RequestId
from contracts.messages import LoadAnswer
from contracts.reasons import Reason
from contracts.routing import ModelRoute, NodeRoute, RoutingTable
from contracts.world import Mode, Residency
from simulator.clock import VirtualClock, settle
from simulator.memory_ports import MemoryMailbox, MemoryModelServer

NODE = NodeId("n")
MODELS = [ModelId("a"), ModelId("b")]
SLOTS = {MODELS[0]: 2}
CAPACITY = {PriorityClass.REALTIME: 3, PriorityClass.BATCH: 2, PriorityClass.BACKGROUND: 2}


class Request:
    """What the machine believes of one request."""

    def __init__(self, number: int, model: ModelId, priority: PriorityClass, client: str) -> None:
        self.number = number
        self.model = model
        self.key = (model, priority, client)
        self.task: asyncio.Task[Pass] | None = None
        self.passed: Pass | None = None
        self.ends = 0


class Room(RuleBasedStateMachine):
    """Arrivals, leaving, ends, put-backs, tables, answers and time."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.requests: list[Request] = []
        self.hot: set[ModelId] = set()
        self.put_backs = 0
        self.let_go: dict[object, list[int]] = defaultdict(list)
        self.made = 0
        self.refusals: list[tuple[str, float | None]] = []
        self.runner.run(self._build())

    async def _build(self) -> None:
        self.clock = VirtualClock(1_000.0)
        config = GatewayConfig(
            nodes=(NodeConfig(node=NODE, url="http://localai"),),
            queue=QueueConfig(capacity=CAPACITY),
            slots=SLOTS,
        )
        self.book = RouteBook()
        self.admission = Admission(config.queue, SlotBook(config.slots))
        telemetry = Telemetry(None, self.clock, "g")
        metrics = GatewayMetrics(self.book.lists)
        self.server = MemoryModelServer(self.clock, dict.fromkeys(MODELS, 5.0))
        lone = LoneLoads(
            owner=GatewayId("g"),
            servers={NODE: self.server},
            lock=None,
            book=self.book,
            admission=self.admission,
            telemetry=telemetry,
            metrics=metrics,
            clock=self.clock,
        )
        self.lone = lone
        self.room = WaitingRoom(
            gateway=GatewayId("g"),
            config=LiveConfig(config),
            book=self.book,
            admission=self.admission,
            lone_loads=lone,
            to_controller=MemoryMailbox(clock=self.clock),
            clock=self.clock,
        )
        self._publish(frozenset(), frozenset())
        await settle()

    def _publish(self, hot: frozenset[ModelId], draining: frozenset[ModelId]) -> None:
        self.made += 1
        self.hot = set(hot) - draining
        self.server.resident.update(hot)
        self.room.on_table(
            RoutingTable(
                token=self.made,
                made_at_s=self.clock.now_s(),
                mode=Mode.ACTIVE,
                models={
                    model: ModelRoute(
                        model=model,
                        node=NODE,
                        residency=Residency.HOT if model in hot else Residency.COLD,
                    )
                    for model in MODELS
                },
                nodes={NODE: NodeRoute(node=NODE, alive=True, free_bytes=None)},
                draining=dict.fromkeys(draining, f"d{self.made}"),
            )
        )

    def _go(self, request: Request, passed: Pass) -> None:
        request.passed = passed
        self.let_go[request.key].append(request.number)

    async def _settle(self) -> None:
        await settle()
        for request in self.requests:
            task = request.task
            if task is not None and task.done():
                request.task = None
                if task.cancelled() or task.exception() is not None:
                    assert task.cancelled() or isinstance(task.exception(), Problem)
                    request.ends += 1
                else:
                    self._go(request, task.result())

    def _wait(self, request: Request, waiter: Waiter) -> None:
        request.task = asyncio.get_running_loop().create_task(self.room.wait(waiter))

    @rule(
        model=st.sampled_from(MODELS),
        priority=st.sampled_from(PriorityClass),
        client=st.sampled_from(["x", "y"]),
        deadline_s=st.none() | st.floats(1.0, 100.0),
    )
    def arrive(
        self, model: ModelId, priority: PriorityClass, client: str, deadline_s: float | None
    ) -> None:
        async def run() -> None:
            request = Request(len(self.requests), model, priority, client)
            self.requests.append(request)
            try:
                entry = self.room.enter(
                    RequestId(str(request.number)),
                    model,
                    priority,
                    deadline_s=deadline_s,
                    client=client,
                )
            except Problem as problem:
                self.refusals.append((problem.type, problem.retry_after_s))
                request.ends += 1
                return
            if isinstance(entry, Pass):
                assert model in self.hot or self.book.is_own_load(model)
                self._go(request, entry)
            else:
                self._wait(request, entry)
            await self._settle()

        self.runner.run(run())

    def _waiting(self) -> list[Request]:
        return [request for request in self.requests if request.task is not None]

    def _running(self) -> list[Request]:
        return [request for request in self.requests if request.passed is not None]

    @precondition(lambda self: self._waiting())
    @rule(data=st.data())
    def caller_leaves(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self._waiting()))

        async def run() -> None:
            assert request.task is not None
            request.task.cancel()
            await self._settle()

        self.runner.run(run())

    @precondition(lambda self: self._running())
    @rule(data=st.data(), was_served=st.booleans())
    def ends(self, data: st.DataObject, was_served: bool) -> None:
        request = data.draw(st.sampled_from(self._running()))

        async def run() -> None:
            assert request.passed is not None
            self.room.leave(request.passed, was_served=was_served)
            request.passed = None
            request.ends += 1
            await self._settle()

        self.runner.run(run())

    @precondition(lambda self: self._running())
    @rule(data=st.data())
    def has_no_slot(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self._running()))

        async def run() -> None:
            assert request.passed is not None
            passed, request.passed = request.passed, None
            self.let_go[request.key].remove(request.number)
            self.put_backs += 1
            self._wait(request, self.room.put_back(passed, 1.0))
            await self._settle()

        self.runner.run(run())

    @rule(
        hot=st.frozensets(st.sampled_from(MODELS)), draining=st.frozensets(st.sampled_from(MODELS))
    )
    def table_comes(self, hot: frozenset[ModelId], draining: frozenset[ModelId]) -> None:
        async def run() -> None:
            self._publish(hot, draining)
            await self._settle()

        self.runner.run(run())

    @rule(
        model=st.sampled_from(MODELS),
        reason=st.sampled_from(
            [Reason.NO_ROOM, Reason.NEVER_FITS, Reason.LOADING, Reason.NODE_LOST]
        ),
    )
    def controller_answers(self, model: ModelId, reason: Reason) -> None:
        async def run() -> None:
            accepted = reason is Reason.LOADING
            self.room.on_answer(LoadAnswer(model=model, accepted=accepted, reason=reason))
            await self._settle()

        self.runner.run(run())

    @rule(duration_s=st.sampled_from([0.1, 1.0, 7.0, 65.0]))
    def time_passes(self, duration_s: float) -> None:
        async def run() -> None:
            await self.clock.advance(duration_s)
            await self._settle()

        self.runner.run(run())

    @invariant()
    def slots_are_exact(self) -> None:
        running = Counter(request.model for request in self._running())
        assert self.admission.running == dict(running)
        for model, slots in SLOTS.items():
            assert running[model] <= slots

    @invariant()
    def whoever_waits_is_counted_once(self) -> None:
        waiting = Counter(request.model for request in self._waiting())
        assert self.room.waiting == dict(waiting)
        assert self.admission.waiting == dict(waiting)
        for priority, count in self.admission.queued.items():
            # One that is put back is not refused a place that it had.
            assert count <= CAPACITY[priority] + self.put_backs

    @invariant()
    def a_refusal_says_when_to_come_again(self) -> None:
        for kind, retry_after_s in self.refusals:
            assert kind in ("queue_full", "model_cooldown")
            assert retry_after_s is not None
            assert retry_after_s > 0.0

    @invariant()
    def each_ends_once_at_most(self) -> None:
        for request in self.requests:
            is_open = request.task is not None or request.passed is not None
            assert request.ends + is_open == 1

    @invariant()
    def a_clients_requests_keep_their_order(self) -> None:
        """Of one model and class. One that was put back takes its old place again."""
        if not self.put_backs:
            assert all(numbers == sorted(numbers) for numbers in self.let_go.values())

    @invariant()
    def nobody_waits_while_there_is_a_slot(self) -> None:
        for request in self._waiting():
            if request.model in self.hot:
                now_s = self.clock.monotonic_s()
                assert not self.admission.has_slot(request.model, now_s)

    def teardown(self) -> None:
        async def run() -> None:
            for request in self._waiting():
                assert request.task is not None
                request.task.cancel()
            await self._settle()
            for request in self._running():
                assert request.passed is not None
                self.room.leave(request.passed)
            await self.room.close()
            await self.lone.close(0.0)
            assert not self.admission.running
            assert not self.admission.waiting
            assert not any(self.admission.queued.values())
            assert not self.room.waiting

        self.runner.run(run())
        self.runner.close()


Room.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestRoom = Room.TestCase
