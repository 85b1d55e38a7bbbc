"""Lists of models of several LocalAIs, answered as one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from structlog.testing import capture_logs

from api.gateway.headers import RequestHead
from api.gateway.listings import MAX_LIST_BYTES, Listing, listing_of
from api.gateway.live import LiveConfig
from api.gateway.model_lists import LIST_S, ModelLists, WholeAnswer, merged
from api.gateway.problems import Problem
from api.gateway.proxy import Relay
from contracts.config import GatewayConfig, NodeConfig
from contracts.ids import NodeId
from contracts.upstream import Broken, OutgoingRequest, Unreachable
from simulator.clock import VirtualClock

ONE, TWO, THREE = (NodeId(name) for name in ("one", "two", "three"))


def _listing(path: str) -> Listing:
    found = listing_of(path)
    assert found is not None
    return found


OPENAI, OLLAMA = _listing("/v1/models"), _listing("/api/tags")


def models(*names: str) -> bytes:
    entries = [{"id": name, "object": "model"} for name in names]
    return msgspec.json.encode({"object": "list", "data": entries})


def names(body: bytes | None) -> list[str]:
    assert body is not None
    return [entry["id"] for entry in msgspec.json.decode(body)["data"]]


class TestMerging:
    def test_what_the_first_does_not_name_is_added_in_order(self):
        whole = merged([models("a", "b"), models("c", "a"), models("d", "c")], OPENAI)
        assert names(whole) == ["a", "b", "c", "d"]

    def test_entries_and_the_rest_come_through_as_they_are(self):
        first = b'{"object": "list",  "x": 1.50, "data": [{"id":  "a", "n": 1e3}]}'
        second = b'{"data": [ {"id": "b",   "\\u00e9": null} ]}'
        whole = merged([first, second], OPENAI)
        assert whole is not None
        for piece in (b'{"id":  "a", "n": 1e3}', b'{"id": "b",   "\\u00e9": null}', b"1.50"):
            assert piece in whole

    def test_where_nothing_is_added_nothing_is_touched(self):
        first = b'{ "data" : [ {"id":"a"} ] }'
        assert merged([first, models("a")], OPENAI) is first
        assert merged([first], OPENAI) is first

    def test_ollamas_names_are_told_apart_without_their_tag(self):
        first = b'{"models":[{"name":"a:latest"}]}'
        second = b'{"models":[{"name":"a"},{"name":"b"}]}'
        whole = merged([first, second], OLLAMA)
        assert whole is not None
        assert [entry["name"] for entry in msgspec.json.decode(whole)["models"]] == [
            "a:latest",
            "b",
        ]

    @pytest.mark.parametrize("odd", [b"", b"[]", b'{"data": 1}', b'{"data": [{"x": 1}]}', b"{"])
    def test_a_list_that_cannot_be_read_is_passed_over(self, odd):
        assert names(merged([models("a"), odd, models("b")], OPENAI)) == ["a", "b"]
        assert merged([odd, models("a")], OPENAI) is None

    def test_no_models_are_a_list_too(self):
        assert names(merged([b'{"data": null}', models("a")], OPENAI)) == ["a"]


class _Answer:
    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.headers = (
            (b"Content-Type", b"application/json"),
            (b"Content-Length", b"%d" % len(body)),
            (b"ETag", b"x"),
        )
        self.is_complete = False
        self._body = body

    def rest(self) -> bytes | None:
        return None

    async def pour(self, sink: Callable[[bytes], bool]) -> None:
        raise AssertionError("nobody asks this here")

    async def read(self) -> bytes:
        body, self._body = self._body, b""
        return body

    def close(self) -> None:
        pass


class _Broken(_Answer):
    async def read(self) -> bytes:
        raise Broken("closed")


class _Upstream:
    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.answer: _Answer | Exception | None = None
        self.seen: list[OutgoingRequest] = []

    async def send(self, request: OutgoingRequest) -> _Answer:
        self.seen.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            await self._clock.sleep(1e6)
        assert isinstance(self.answer, _Answer)
        return self.answer

    async def open_tunnel(self):
        raise AssertionError("nobody asks this here")

    async def close(self) -> None:
        pass


class Site:
    """The second node is the primary."""

    def __init__(self, *nodes: NodeId) -> None:
        self.clock = VirtualClock(1_000.0)
        configs = tuple(
            NodeConfig(node=node, url=f"http://{node}", primary=node == nodes[-1]) for node in nodes
        )
        self.upstreams = {node: _Upstream(self.clock) for node in nodes}
        for node in nodes:
            self.upstreams[node].answer = _Answer(200, models(f"of-{node}", "both"))
        self.shut: set[NodeId] = set()
        self.lists = ModelLists(
            relay=Relay(LiveConfig(GatewayConfig(nodes=configs)), self.upstreams, self.clock),
            is_shut=lambda node: node in self.shut,
            clock=self.clock,
        )

    async def got(self) -> tuple[int, list[str]]:
        answer = await self.lists.send(head(), OPENAI)
        assert isinstance(answer, WholeAnswer)
        body = await answer.read()
        assert await answer.read() == b""
        answer.close()
        headers = dict(answer.headers)
        assert b"ETag" not in headers or answer.status != 200
        if answer.status != 200:
            return answer.status, []
        assert headers[b"content-length"] == b"%d" % len(body)
        return answer.status, names(body)


def head(path: str = "/v1/models", method: str = "GET") -> RequestHead:
    return RequestHead(
        method=method,
        path=path,
        target=path.encode(),
        query=b"",
        headers=((b"host", b"h"), (b"accept-encoding", b"gzip"), (b"if-none-match", b"x")),
        scheme="http",
        client=None,
    )


class TestAsking:
    def test_only_lists_and_only_of_several_nodes(self):
        assert Site(ONE).lists.listing_for(head()) is None
        lists = Site(ONE, TWO).lists
        assert lists.listing_for(head()) is OPENAI
        assert lists.listing_for(head("/api/tags")) is OLLAMA
        assert lists.listing_for(head(method="HEAD")) is None
        assert lists.listing_for(head("/system")) is None

    async def test_the_primarys_come_first(self):
        site = Site(ONE, TWO)
        assert await site.got() == (200, ["of-two", "both", "of-one"])
        sent = {name for name, _ in site.upstreams[ONE].seen[0].headers}
        assert not sent & {b"accept-encoding", b"if-none-match"}
        assert site.lists.left_out == {}

    @pytest.mark.parametrize(
        "answer",
        [
            Unreachable("connection refused"),
            _Answer(500, b"{}"),
            _Answer(401, b"{}"),
            _Broken(200, b""),
            _Answer(200, b" " * (MAX_LIST_BYTES + 1)),
        ],
    )
    async def test_a_node_without_a_list_is_left_out_and_counted(self, answer):
        site = Site(ONE, TWO)
        site.upstreams[ONE].answer = answer
        with capture_logs() as logs:
            assert await site.got() == (200, ["of-two", "both"])
        assert site.lists.left_out == {ONE: 1}
        assert "list_left_out" in [line["event"] for line in logs]

    async def test_so_is_a_slow_one(self):
        site = Site(ONE, TWO)
        site.upstreams[ONE].answer = None
        asking = asyncio.ensure_future(site.got())
        await site.clock.advance(LIST_S)
        assert await asking == (200, ["of-two", "both"])

    async def test_and_one_that_is_known_to_be_away(self):
        site = Site(ONE, TWO)
        site.shut.add(ONE)
        assert await site.got() == (200, ["of-two", "both"])
        assert not site.upstreams[ONE].seen

    async def test_a_primary_that_is_away_leaves_the_others_lists(self):
        site = Site(ONE, THREE, TWO)
        site.upstreams[TWO].answer = Unreachable("connection refused")
        assert await site.got() == (200, ["of-one", "both", "of-three"])

    async def test_one_that_refuses_the_caller_is_heard(self):
        site = Site(ONE, TWO)
        site.upstreams[TWO].answer = _Answer(401, b"{}")
        assert await site.got() == (401, [])

    async def test_without_any_list_the_primary_has_the_word(self):
        site = Site(ONE, TWO)
        site.upstreams[ONE].answer = Unreachable("connection refused")
        site.upstreams[TWO].answer = _Answer(500, b"{}")
        assert await site.got() == (500, [])
        site.upstreams[TWO].answer = Unreachable("connection refused")
        with pytest.raises(Problem) as caught:
            await site.got()
        assert caught.value.status == 502

    async def test_a_list_of_the_primarys_that_cannot_be_read_passes_as_it_is(self):
        site = Site(ONE, TWO)
        site.upstreams[TWO].answer = _Answer(200, b"no list")
        answer = await site.lists.send(head(), OPENAI)
        assert await answer.read() == b"no list"
