"""How answers are written: head and body together, framed once, and nothing behind the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from api.gateway.cycle import EdgeCycle, OldCallerCycle


class Wire:
    """A transport that keeps what is written, write by write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_closed = False
        self.is_reading = True

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def writelines(self, pieces: list[bytes]) -> None:
        self.writes.append(b"".join(pieces))

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


class Kit:
    def __init__(self, *, kind: type[EdgeCycle], method: str, keep_alive: bool) -> None:
        self.wire = Wire()
        self.flow = FlowControl(self.wire)  # type: ignore[arg-type] # has what is used of it
        self.answered = 0
        self.cycle = kind(
            scope={"type": "http", "method": method},  # type: ignore[typeddict-item] # as above
            transport=self.wire,  # type: ignore[arg-type] # as above
            flow=self.flow,
            logger=logging.getLogger("test"),
            access_logger=logging.getLogger("test"),
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=keep_alive,
            on_response=self._on_response,
        )
        self.cycle.more_body = False  # the whole request is here

    def _on_response(self) -> None:
        self.answered += 1

    async def start(self, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
        await self.cycle.send(
            {"type": "http.response.start", "status": status, "headers": list(headers)}
        )

    async def give(self, body: bytes, *, more: bool = True) -> None:
        await self.cycle.send({"type": "http.response.body", "body": body, "more_body": more})


@pytest.fixture
def make() -> Callable[..., Kit]:
    def made(
        *, kind: type[EdgeCycle] = EdgeCycle, method: str = "GET", keep_alive: bool = True
    ) -> Kit:
        return Kit(kind=kind, method=method, keep_alive=keep_alive)

    return made


async def test_a_small_answer_is_one_write(make):
    kit = make()
    await kit.start(200, (b"content-length", b"2"), (b"x-a", b"1"))
    assert kit.wire.writes == []
    await kit.give(b"ok", more=False)
    assert kit.wire.writes == [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-a: 1\r\n\r\nok"]
    assert kit.answered == 1
    await asyncio.sleep(0)
    assert len(kit.wire.writes) == 1


async def test_a_head_that_nothing_follows_goes_alone(make):
    kit = make()
    await kit.start()
    await asyncio.sleep(0)
    assert kit.wire.writes == [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"]
    await kit.give(b"abc")
    await kit.give(b"")
    await kit.give(b"x" * 100_000)
    await kit.give(b"", more=False)
    whole = b"".join(kit.wire.writes[1:])
    assert whole == b"3\r\nabc\r\n" + b"186a0\r\n" + b"x" * 100_000 + b"\r\n0\r\n\r\n"


async def test_a_head_is_not_written_to_a_connection_that_was_closed(make):
    kit = make()
    await kit.start()
    kit.wire.close()
    await asyncio.sleep(0)
    assert kit.wire.writes == []


@pytest.mark.parametrize(
    ("method", "status", "headers"),
    [
        ("HEAD", 200, ((b"content-length", b"100"),)),
        ("HEAD", 200, ()),
        ("GET", 204, ()),
        ("GET", 304, ((b"content-length", b"100"),)),
    ],
)
async def test_some_answers_have_no_body(make, method, status, headers):
    kit = make(method=method)
    await kit.start(status, *headers)
    await kit.give(b"", more=False)
    (written,) = kit.wire.writes
    assert written.endswith(b"\r\n\r\n")
    assert b"transfer-encoding" not in written
    assert kit.answered == 1


@pytest.mark.parametrize(("keep_alive", "header"), [(False, None), (True, b"Keep-alive, close")])
async def test_a_connection_that_ends_says_so_once(make, keep_alive, header):
    kit = make(keep_alive=keep_alive)
    own = () if header is None else ((b"connection", header),)
    await kit.start(200, (b"content-length", b"0"), *own)
    await kit.give(b"", more=False)
    assert kit.wire.writes[0].lower().count(b"connection: ") == 1
    assert kit.wire.is_closed


async def test_an_old_callers_answer_ends_with_its_connection(make):
    kit = make(kind=OldCallerCycle, keep_alive=False)
    await kit.start()
    await kit.give(b"abc")
    await kit.give(b"def", more=False)
    assert b"".join(kit.wire.writes) == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nabcdef"
    assert kit.wire.is_closed


async def test_a_status_that_has_no_name(make):
    kit = make()
    await kit.start(799, (b"content-length", b"0"))
    await kit.give(b"", more=False)
    assert kit.wire.writes[0].startswith(b"HTTP/1.1 799 \r\n")


@pytest.mark.parametrize("value", [b"a\r\nb: c", b"a\nb", b"a\rb"])
async def test_a_header_cannot_hold_another(make, value):
    with pytest.raises(RuntimeError, match="line break"):
        await make().start(200, (b"x", value))


@pytest.mark.parametrize(("body", "more"), [(b"abc", True), (b"a", False)])
async def test_a_body_is_as_long_as_it_was_said_to_be(make, body, more):
    kit = make()
    await kit.start(200, (b"content-length", b"2"))
    with pytest.raises(RuntimeError, match="than its length says"):
        await kit.give(body, more=more)


async def test_an_answer_has_one_head_and_one_end(make):
    kit = make()
    with pytest.raises(RuntimeError):
        await kit.give(b"first")
    await kit.start()
    with pytest.raises(RuntimeError):
        await kit.start()
    await kit.give(b"", more=False)
    with pytest.raises(RuntimeError, match="more of an answer than its end"):
        await kit.give(b"more")


async def test_nothing_is_written_to_who_has_left(make):
    kit = make()
    left: list[bool] = []
    kit.flow.pause_reading()
    kit.cycle.when_left(lambda: left.append(True))
    assert kit.wire.is_reading
    kit.cycle.leave()
    assert left == [True]
    await kit.start()
    await kit.give(b"x")
    assert kit.wire.writes == []
    assert kit.cycle.write_now(b"x") is False
    assert (await kit.cycle.receive())["type"] == "http.disconnect"


async def test_who_had_left_before_is_told_soon(make):
    kit = make()
    kit.cycle.leave()
    left: list[bool] = []
    kit.cycle.when_left(lambda: left.append(True))
    assert left == []
    await asyncio.sleep(0)
    assert left == [True]


async def test_a_piece_is_written_at_once_where_there_is_room(make):
    kit = make()
    assert kit.cycle.write_now(b"x") is False  # there is no head yet
    await kit.start()
    assert kit.cycle.write_now(b"x") is True
    kit.flow.pause_writing()
    assert kit.cycle.write_now(b"y") is False
    giving = asyncio.ensure_future(kit.give(b"y"))
    await asyncio.sleep(0)
    assert not giving.done()
    kit.flow.resume_writing()
    await giving
    assert kit.wire.writes[-1] == b"1\r\ny\r\n"


@pytest.mark.parametrize("kind", [EdgeCycle, OldCallerCycle])
async def test_a_whole_answer_is_written_at_once_where_there_is_room(make, kind):
    kit = make(kind=kind)
    kit.flow.pause_writing()
    assert kit.cycle.answer_now(200, [(b"content-length", b"2")], b"ok") is False
    kit.flow.resume_writing()
    assert kit.cycle.answer_now(200, [(b"content-length", b"2")], b"ok") is True
    assert kit.wire.writes == [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"]
    assert kit.answered == 1
    assert kit.cycle.answer_now(200, [], b"") is False  # there was one
    await asyncio.sleep(0)
    assert len(kit.wire.writes) == 1


async def test_a_whole_answer_is_not_written_to_who_has_left(make):
    kit = make()
    kit.cycle.leave()
    assert kit.cycle.answer_now(200, [], b"ok") is False
    assert kit.wire.writes == []


async def test_a_whole_answer_of_unknown_length_goes_in_chunks(make):
    kit = make()
    assert kit.cycle.answer_now(200, [], b"ok") is True
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    assert kit.wire.writes == [head + b"2\r\nok\r\n0\r\n\r\n"]
