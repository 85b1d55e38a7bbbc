"""Where a request is sent, and where else when that fails; nothing here has a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from api.gateway.body import RequestBody
from api.gateway.breaker import FAILURES, MODEL_RULE, NODE_RULE, Phase
from api.gateway.dispatch import Dispatcher
from api.gateway.headers import RequestHead
from api.gateway.live import LiveConfig
from api.gateway.meter import Subject
from api.gateway.problems import Problem
from api.gateway.proxy import AnswerCut, Relay
from api.gateway.residency import RouteBook
from api.gateway.roll_call import RollCall
from api.gateway.slots import SlotBook
from contracts.config import BalancingConfig, GatewayConfig, NodeConfig, TimeoutConfig
from contracts.events import PriorityClass
from contracts.ids import ModelId, NodeId, RequestId
from contracts.routing import ModelRoute, NodeRoute, RoutingTable
from contracts.upstream import Broken, OutgoingRequest, Unanswered, Unreachable
from contracts.world import Mode, Residency
from simulator.clock import VirtualClock
from simulator.memory_ports import MemoryModelServer

ONE, TWO, THREE = (NodeId(name) for name in ("one", "two", "three"))
A, B = ModelId("a"), ModelId("b")
HOT, COLD = Residency.HOT, Residency.COLD


class Answer:
    """Nothing but a head."""

    headers: tuple[tuple[bytes, bytes], ...] = ()
    is_complete = True

    def __init__(self, status: int) -> None:
        self.status = status
        self.closed = False

    def rest(self) -> bytes | None:
        return None

    async def pour(self, sink: Callable[[bytes], bool]) -> None:
        raise AssertionError("nobody asks this here")

    async def read(self) -> bytes:
        return b""

    def close(self) -> None:
        self.closed = True


class StubUpstream:
    """Answers 200, or what the test says is next: a status, an error, or nothing for ever."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.next: list[int | Exception | None] = []
        self.always: int | Exception | None = 200
        self.seen: list[OutgoingRequest] = []

    async def send(self, request: OutgoingRequest) -> Answer:
        self.seen.append(request)
        outcome = self.next.pop(0) if self.next else self.always
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is None:
            await self.clock.sleep(1e6)
        assert isinstance(outcome, int)
        return Answer(outcome)

    async def open_tunnel(self):
        raise AssertionError("nobody asks this here")

    async def close(self) -> None:
        pass


class Site:
    """A dispatcher over some nodes."""

    def __init__(self, *names: NodeId, **settings: Any) -> None:
        self.clock = VirtualClock(1_000.0)
        nodes = tuple(
            NodeConfig(node=name, url=f"http://{name}", primary=name == names[0]) for name in names
        )
        config = replace(GatewayConfig(nodes=nodes), **settings)
        self.live = LiveConfig(config)
        self.upstreams = {name: StubUpstream(self.clock) for name in names}
        self.servers = {name: MemoryModelServer(self.clock, {A: 1.0}) for name in names}
        self.book = RouteBook()
        self.slots = SlotBook({})
        relay = Relay(self.live, self.upstreams, self.clock)
        self.roll_call = RollCall(
            servers=self.servers, primary=lambda: relay.primary, book=self.book, clock=self.clock
        )
        self.dispatcher = Dispatcher(
            config=self.live,
            book=self.book,
            relay=relay,
            slots=self.slots,
            roll_call=self.roll_call,
            clock=self.clock,
        )
        self.told: list[NodeId] = []

    def knows(self, model: ModelId, home: NodeId, **places: Residency) -> None:
        """A table says where a model is."""
        residencies = {NodeId(name): residency for name, residency in places.items()}
        table = self.book.table
        route = ModelRoute(model=model, node=home, residency=residencies[home], places=residencies)
        self.book.accept(
            RoutingTable(
                token=1,
                made_at_s=self.clock.now_s(),
                mode=Mode.ACTIVE,
                models={**(table.models if table else {}), model: route},
                nodes={
                    name: NodeRoute(node=name, alive=True, free_bytes=None)
                    for name in self.upstreams
                },
            )
        )

    async def send(self, model: ModelId | None = A, *, client: str = "c", **how: Any):
        """One request that ends as soon as its answer's head is there."""
        errand = self.dispatcher.open(subject(model, client), None)
        try:
            answer = await errand.send(
                how.get("head", head()),
                how.get("body"),
                on_node=lambda node: self.told.append(node.node),
            )
            errand.answered(answer.status, is_whole=True)
            return answer
        finally:
            errand.close()

    async def fails(self, model: ModelId | None = A, **how: Any) -> Problem:
        with pytest.raises(Problem) as caught:
            await self.send(model, **how)
        return caught.value

    def idle(self) -> bool:
        return not any(self.dispatcher.ledger.by_node.values())


def subject(model: ModelId | None, client: str = "c") -> Subject:
    return Subject(
        request_id=RequestId("r"),
        model=model,
        operation="chat",
        priority=PriorityClass.REALTIME,
        client=client,
        stream=False,
    )


def head(method: str = "POST") -> RequestHead:
    return RequestHead(
        method=method,
        path="/v1/chat/completions",
        target=b"/v1/chat/completions",
        query=b"",
        headers=((b"host", b"h"),),
        scheme="http",
        client=None,
    )


class TestOneNode:
    async def test_everything_goes_there(self):
        site = Site(ONE)
        assert (await site.send()).status == 200
        assert (await site.send(None)).status == 200
        assert site.told == [ONE, ONE]
        assert site.idle()

    async def test_failures_shut_the_model_off_and_say_for_how_long(self):
        site = Site(ONE)
        site.upstreams[ONE].always = 500
        for _ in range(FAILURES):
            assert (await site.send()).status == 500
        problem = await site.fails()
        assert (problem.status, problem.type) == (503, "no_backend")
        assert problem.retry_after_s == MODEL_RULE.first_open_s
        assert len(site.upstreams[ONE].seen) == FAILURES, "it is not asked"
        site.upstreams[ONE].always = 200
        assert (await site.send(B)).status == 200, "others are"

    async def test_it_is_tried_again_later(self):
        site = Site(ONE)
        site.upstreams[ONE].next = [500] * FAILURES
        for _ in range(FAILURES):
            await site.send()
        await site.clock.advance(MODEL_RULE.first_open_s)
        assert (await site.send()).status == 200
        assert (await site.send()).status == 200

    async def test_refused_connections_shut_the_node_off(self):
        site = Site(ONE)
        site.upstreams[ONE].always = Unreachable("connection refused")
        for _ in range(FAILURES):
            assert (await site.fails()).status == 502
        problem = await site.fails(B)
        assert (problem.type, problem.retry_after_s) == ("no_backend", NODE_RULE.first_open_s)

    async def test_what_localai_refuses_for_now_is_no_failure(self):
        site = Site(ONE)
        site.upstreams[ONE].always = 503
        for _ in range(9):
            assert (await site.send()).status == 503
        site.upstreams[ONE].always = 404
        for _ in range(9):
            assert (await site.send()).status == 404

    async def test_a_fresh_load_opens_the_way_again(self):
        site = Site(ONE)
        site.upstreams[ONE].next = [500] * FAILURES
        for _ in range(FAILURES):
            await site.send()
        site.book.note_loaded(A, ONE, now_s=site.clock.now_s(), load_s=1.0)
        assert (await site.send()).status == 200


class TestTimeouts:
    async def test_silence_shuts_the_model_off_at_once(self):
        site = Site(ONE, timeouts={A: TimeoutConfig(first_byte_s=5.0, connect_s=2.0)})
        site.upstreams[ONE].next = [None]
        task = asyncio.ensure_future(site.fails())
        await site.clock.advance(5.0)
        problem = await task
        assert (problem.status, problem.type) == (504, "upstream_timeout")
        assert site.upstreams[ONE].seen[0].connect_timeout_s == 2.0
        assert site.dispatcher.breakers.phases(site.clock.monotonic_s()) == {(ONE, A): Phase.OPEN}
        assert (await site.fails()).type == "no_backend"

    def test_slow_models_may_be_slow(self):
        site = Site(ONE)
        site.book.note_loaded(A, ONE, now_s=0.0, load_s=700.0)
        site.dispatcher.first_bytes.note(A, 50.0)
        assert site.dispatcher.limits(A).first_byte_s == 750.0
        assert site.dispatcher.limits(None).first_byte_s == 600.0

    async def test_what_is_measured_is_from_the_sending_to_the_first_content(self):
        site = Site(ONE)
        errand = site.dispatcher.open(subject(A), None)
        await errand.send(head(), None)
        await site.clock.advance(3.0)
        errand.note_first_content()
        errand.note_first_content()
        errand.close()
        assert site.dispatcher.first_bytes.longest_s(A) == 3.0
        nameless = site.dispatcher.open(subject(None), None)
        await nameless.send(head(), None)
        nameless.note_first_content()
        nameless.close()
        assert len(site.dispatcher.first_bytes) == 1


class TestElsewhere:
    async def test_a_request_goes_where_its_model_is(self):
        site = Site(ONE, TWO, THREE)
        site.knows(A, ONE, one=COLD, two=HOT, three=COLD)
        for number in range(30):
            await site.send(client=str(number))
        assert set(site.told) == {TWO}

    async def test_a_refused_connection_is_tried_elsewhere(self):
        site = Site(ONE, TWO)
        site.knows(A, ONE, one=HOT, two=HOT)
        site.upstreams[ONE].always = Unreachable("connection refused")
        assert (await site.send()).status == 200
        assert site.told == [ONE, TWO]
        assert site.dispatcher.retries == {"refused": 1}
        assert site.idle()

    async def test_also_one_that_nobody_took(self):
        site = Site(ONE, TWO)
        site.knows(A, ONE, one=HOT, two=HOT)
        site.upstreams[ONE].next = [Unanswered("connecting took too long")]
        assert (await site.send()).status == 200

    async def test_but_at_most_three_times(self):
        site = Site(ONE, TWO, THREE, NodeId("four"))
        site.knows(A, ONE, one=HOT, two=HOT, three=HOT, four=HOT)
        for upstream in site.upstreams.values():
            upstream.always = Unreachable("connection refused")
        assert (await site.fails()).status == 502
        assert len(site.told) == 3

    async def test_a_post_that_broke_is_not_sent_again(self):
        site = Site(ONE, TWO)
        site.knows(A, ONE, one=HOT, two=HOT)
        site.upstreams[ONE].always = Broken("the connection was closed")
        assert (await site.fails()).status == 502
        assert site.told == [ONE]

    async def test_but_one_that_changes_nothing_is(self):
        site = Site(ONE, TWO)
        site.knows(A, ONE, one=HOT, two=HOT)
        site.upstreams[ONE].always = Broken("the connection was closed")
        assert (await site.send(head=head("GET"))).status == 200
        assert site.dispatcher.retries == {"broken": 1}

    async def test_a_body_that_is_gone_is_not_sent_again(self):
        site = Site(ONE, TWO)
        site.knows(A, ONE, one=HOT, two=HOT)
        site.upstreams[ONE].always = Unreachable("connection refused")
        body = await streamed(is_spent=True)
        assert (await site.fails(body=body)).status == 502
        assert site.told == [ONE]
        site.told.clear()
        whole = await streamed(is_spent=False)
        assert (await site.send(body=whole)).status == 200
        assert site.told == [ONE, TWO]

    async def test_nobody_is_asked_who_is_known_to_be_away(self):
        site = Site(ONE, TWO)
        site.knows(A, ONE, one=HOT, two=HOT)
        site.upstreams[ONE].always = Unreachable("connection refused")
        for number in range(FAILURES):
            await site.send(client=str(number))
        site.told.clear()
        assert (await site.send(client="new")).status == 200
        assert site.told == [TWO]

    async def test_when_all_are_away_it_says_when_the_first_may_be_back(self):
        site = Site(ONE, TWO)
        site.knows(A, ONE, one=HOT, two=HOT)
        for upstream in site.upstreams.values():
            upstream.always = Unreachable("connection refused")
        for _ in range(FAILURES):
            await site.fails()
        problem = await site.fails()
        assert (problem.status, problem.type, problem.retry_after_s) == (503, "no_backend", 1.0)

    async def test_a_model_that_one_node_alone_knows_goes_nowhere_else(self):
        site = Site(ONE, TWO)
        site.knows(A, ONE, one=HOT)
        site.upstreams[ONE].always = Unreachable("connection refused")
        assert (await site.fails()).status == 502
        assert site.told == [ONE]

    async def test_a_model_that_has_moved_is_found(self):
        site = Site(ONE, TWO)
        site.knows(A, ONE, one=HOT)
        site.upstreams[ONE].always = 404
        assert (await site.send()).status == 200
        assert site.told == [ONE, TWO]
        assert site.dispatcher.retries == {"not_found": 1}

    async def test_one_that_nobody_has_is_asked_for_twice(self):
        site = Site(ONE, TWO, THREE)
        for upstream in site.upstreams.values():
            upstream.always = 404
        assert (await site.send(B)).status == 404
        assert len(site.told) == 2
        site.told.clear()
        assert (await site.send(None)).status == 404
        assert site.told == [ONE]

    async def test_what_is_unknown_goes_to_the_primary(self):
        site = Site(ONE, TWO)
        site.knows(A, TWO, two=HOT)
        await site.send(B)
        await site.send(None)
        assert site.told == [ONE, ONE]

    async def test_nodes_that_others_have_are_none_of_ours(self):
        site = Site(ONE, TWO)
        site.knows(A, NodeId("elsewhere"), elsewhere=HOT)
        await site.send()
        assert site.told == [ONE]


class TestBalance:
    async def test_a_client_comes_back_to_its_cache(self):
        site = Site(ONE, TWO)
        site.knows(A, ONE, one=HOT, two=HOT)
        busy = site.dispatcher.open(subject(A, "other"), None)
        await busy.send(head(), None)
        await site.send(client="mine")
        assert site.told == [TWO]
        busy.close()
        await site.send(client="mine")
        assert site.told == [TWO, TWO]

    async def test_requests_of_all_gateways_are_load(self):
        site = Site(ONE, TWO)
        site.knows(A, ONE, one=HOT, two=HOT)
        assert site.book.table is not None
        nodes = {**site.book.table.nodes}
        nodes[ONE] = replace(nodes[ONE], in_flight=9)
        site.book.accept(replace(site.book.table, nodes=nodes))
        await site.send()
        assert site.told == [TWO]

    async def test_slots_count_by_copy(self):
        site = Site(ONE, TWO)
        site.knows(A, ONE, one=HOT, two=HOT)
        site.slots.configure({A: 1})
        first = site.dispatcher.open(subject(A), None)
        await first.send(head(), None)
        await site.send()
        assert site.told == [TWO]
        first.close()
        assert site.slots.limit(A, 0.0) == 2
        assert site.slots.of_a_copy(A, 0.0) == 1
        assert site.slots.of_a_copy(B, 0.0) is None

    async def test_weights_share_requests_out(self):
        site = Site(
            ONE,
            TWO,
            balancing=BalancingConfig(strategy="weighted-round-robin", weights={"cuda": 1.0}),
        )
        site.knows(A, ONE, one=HOT, two=HOT)
        for _ in range(6):
            await site.send()
        assert site.told == [ONE, TWO] * 3

    async def test_a_cpu_that_helps_out_is_told_of(self):
        site = Site(ONE, TWO)
        cpu = replace(site.dispatcher.nodes[TWO], accelerator="cpu")
        site.dispatcher.relay.fleet.nodes[TWO] = cpu
        told: list[Subject] = []
        site.dispatcher.on_makeshift = told.append
        site.knows(A, ONE, one=COLD, two=HOT)
        await site.send()
        assert (site.told, told) == ([TWO], [subject(A)])
        assert not site.dispatcher.is_away(ONE)

    async def test_who_is_away_from_home_is_told(self):
        site = Site(ONE, TWO)
        assert site.dispatcher.in_flight_away() == {}
        site.knows(A, ONE, one=COLD, two=HOT)
        errand = site.dispatcher.open(subject(A), None)
        errand.begin()
        assert site.dispatcher.in_flight_away() == {A: 1}
        assert errand.node == TWO
        errand.close()
        errand.close()
        assert site.dispatcher.in_flight_away() == {}


class TestVerdicts:
    def judged(self, site, act):
        errand = site.dispatcher.open(subject(A), None)
        errand.begin()
        act(errand)
        errand.close()

    def is_open(self, site):
        return site.dispatcher.is_shut(ONE, A)

    def test_answers_that_end_in_an_error_are_failures(self):
        site = Site(ONE)
        for _ in range(FAILURES):
            self.judged(site, lambda errand: errand.answered(200, is_whole=False))
        assert self.is_open(site)

    def test_so_are_those_that_break_off(self):
        site = Site(ONE)
        broken = Problem(status=502, type="upstream_error", message="")
        broken.__cause__ = Broken("closed")
        cut = AnswerCut("cut")
        cut.__cause__ = broken
        for error in (broken, cut, cut):
            self.judged(site, lambda errand, error=error: errand.broke(error))
        assert self.is_open(site)

    @pytest.mark.parametrize(
        "error",
        [
            AnswerCut("the caller takes nothing", by_caller=True),
            AnswerCut("preempted"),
            Problem(status=413, type="invalid_request_error", message=""),
        ],
    )
    def test_what_is_the_callers_doing_is_not(self, error):
        site = Site(ONE)
        for _ in range(2 * FAILURES):
            self.judged(site, lambda errand: errand.broke(error))
        assert not self.is_open(site)

    def test_a_request_that_worked_says_nothing_else_later(self):
        site = Site(ONE)
        broken = Problem(status=502, type="upstream_error", message="")
        broken.__cause__ = Broken("closed")

        def act(errand):
            errand.note_first_content()
            errand.broke(broken)

        for _ in range(2 * FAILURES):
            self.judged(site, act)
        assert not self.is_open(site)


class _Caller:
    """Gives two pieces."""

    has_left = False

    def __init__(self) -> None:
        self._pieces = [(b"one", True), (b"two", False)]

    async def read(self) -> tuple[bytes, bool]:
        return self._pieces.pop(0)

    def watch(self) -> None:
        pass


async def streamed(*, is_spent: bool) -> RequestBody:
    body = RequestBody(_Caller(), limit_bytes=100, spool_bytes=100)  # type: ignore[arg-type] # enough of one
    await body.read_piece()
    assert body.can_be_sent_again
    if is_spent:
        pieces = body.outgoing()
        assert isinstance(pieces, AsyncIterator)
        assert [piece async for piece in pieces] == [b"one", b"two"]
        assert not body.can_be_sent_again
    return body
