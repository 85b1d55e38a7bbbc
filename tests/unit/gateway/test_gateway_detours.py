"""Requests on their way down a ladder, and what comes back to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import pytest

from api.gateway.admission import Admission, Ticket
from api.gateway.body import RequestBody
from api.gateway.caller import Caller
from api.gateway.detect import ApiStyle, InferencePath, Wishes, match_path
from api.gateway.detours import MAX_LOOKED_AT_BYTES, Detour, Detours
from api.gateway.headers import RequestHead
from api.gateway.meter import Subject
from api.gateway.problems import Problem, model_cooldown, no_backend, queue_full
from api.gateway.recognition import Recognised
from api.gateway.renamed_answers import (
    WHOLE_BYTES,
    RenamedAnswer,
    RenamedBody,
    with_asked_name,
)
from api.gateway.renaming import NameFilter
from api.gateway.residency import RouteBook
from api.gateway.slots import SlotBook
from contracts.config import CallerKey, QueueConfig
from contracts.errors import Transient
from contracts.events import PriorityClass
from contracts.ids import ModelId, NodeId, RequestId
from contracts.reasons import Reason
from contracts.routing import ModelRoute, NodeRoute, RoutingTable
from contracts.upstream import RawHeaders
from contracts.variants import Fallback, Ladder, Rung, RungKind
from contracts.world import Mode, Residency
from simulator.clock import VirtualClock

NODE = NodeId("gpu")
LLAMA, Q4, CPU = ModelId("llama"), ModelId("llama-q4"), ModelId("llama--headstart-cpu")
LADDER = Ladder(
    model=LLAMA,
    rungs=(Rung(model=Q4, kind=RungKind.QUANTISED), Rung(model=CPU, kind=RungKind.CPU)),
    cpu_factor=4.0,
)
PATH = match_path("POST", "/v1/chat/completions")
HOT, COLD, LOADING, FAILED = (
    Residency.HOT,
    Residency.COLD,
    Residency.LOADING,
    Residency.FAILED,
)


class House:
    """A table, a clock, and what a request meets there."""

    def __init__(self, ladder: Ladder = LADDER) -> None:
        self.clock = VirtualClock(1000.0)
        self.book = RouteBook()
        self.admission = Admission(QueueConfig(), SlotBook({}))
        self.told: dict[ModelId, Reason] = {}
        self.desk = Detours(
            book=self.book, admission=self.admission, held=self.told.get, clock=self.clock
        )
        self.ladder = ladder
        self.tables = 0

    def shows(self, held: Mapping[ModelId, Reason] | None = None, **residencies: Residency) -> None:
        """A table with these models; each loads in 8 s."""
        names = {"llama": LLAMA, "q4": Q4, "cpu": CPU}
        self.tables += 1
        now_s = self.clock.now_s()
        models = {
            names[name]: ModelRoute(
                model=names[name],
                node=NODE,
                residency=residency,
                expected_load_s=8.0,
                load_started_at_s=now_s if residency is LOADING else None,
                cooldown_until_s=now_s + 10.0 if residency is FAILED else None,
                held=(held or {}).get(names[name]),
            )
            for name, residency in residencies.items()
        }
        self.book.accept(
            RoutingTable(
                token=1,
                made_at_s=now_s + self.tables / 1000,
                mode=Mode.ACTIVE,
                models=models,
                nodes={NODE: NodeRoute(node=NODE, alive=True, free_bytes=None)},
                aliases={"gpt": LLAMA},
                ladders={LLAMA: self.ladder},
            )
        )

    async def open(
        self,
        body: bytes = b'{"model":"llama"}',
        *,
        model: ModelId | None = LLAMA,
        fallback: bool | None = None,
        priority: PriorityClass = PriorityClass.REALTIME,
        key: CallerKey | None = None,
        kind: bytes = b"application/json",
        encoding: bytes | None = None,
        path: InferencePath | None = PATH,
    ) -> Detour | None:
        headers = [(b"content-type", kind)]
        if encoding is not None:
            headers.append((b"content-encoding", encoding))
        head = RequestHead(
            method="POST", path="/", target=b"/", query=b"", headers=tuple(headers),
            scheme="http", client=None, key=key,
        )  # fmt: skip
        request = Recognised(
            subject=subject(model, priority), shown_id="r", wishes=Wishes(fallback=fallback)
        )
        assert path is not None
        return self.desk.open(head, path, await whole(body), request)

    async def opened(self, body: bytes = b'{"model":"llama"}') -> Detour:
        detour = await self.open(body)
        assert detour is not None
        return detour


def subject(
    model: ModelId | None = LLAMA, priority: PriorityClass = PriorityClass.REALTIME
) -> Subject:
    return Subject(
        request_id=RequestId("r"),
        model=model,
        operation="chat",
        priority=priority,
        client="c",
        stream=False,
    )


async def whole(data: bytes) -> RequestBody:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(_message: object) -> None:
        raise AssertionError

    body = RequestBody(Caller(receive, send), limit_bytes=10**8, spool_bytes=10**8)
    await body.read_all()
    return body


def gone() -> Problem:
    return no_backend("no", decision=Reason.NODE_LOST)


def goes_to(detour: Detour) -> ModelId | None:
    return detour.subject.model


# Whether it may


async def test_only_what_has_a_ladder_and_a_name_that_can_be_changed_may_go_elsewhere():
    house = House()
    assert await house.open() is None
    house.shows(llama=COLD, q4=HOT)
    assert await house.open() is not None
    assert await house.open(model=None) is None
    assert await house.open(model=Q4) is None
    assert await house.open(fallback=False) is None
    assert await house.open(kind=b"application/x-www-form-urlencoded") is None
    assert await house.open(encoding=b"gzip") is None
    speech = InferencePath(operation="tts", style=ApiStyle.OTHER, model_field="voice")
    assert await house.open(path=speech) is None
    key = CallerKey(name="k", digest=b"", fallback=Fallback.DENY)
    assert await house.open(key=key) is None
    assert await house.open(key=CallerKey(name="k", digest=b"")) is not None


async def test_what_may_wait_goes_down_only_where_its_caller_says_so():
    house = House()
    house.shows(llama=COLD, q4=HOT)
    for priority in (PriorityClass.BATCH, PriorityClass.BACKGROUND):
        assert await house.open(priority=priority) is None
        assert await house.open(priority=priority, fallback=True) is not None


async def test_a_body_that_still_comes_is_looked_at_when_all_of_it_is_here():
    house = House()
    house.shows(llama=COLD, q4=HOT)
    detour = await house.opened()
    detour._body.is_complete = False
    assert not detour.look()
    detour._body.is_complete = True
    assert detour.look()
    assert goes_to(detour) == Q4


async def test_a_very_long_body_goes_to_its_model():
    house = House()
    house.shows(llama=COLD, q4=HOT)
    detour = await house.opened()
    detour._body.size_bytes = MAX_LOOKED_AT_BYTES + 1
    assert not detour.look()


async def test_a_form_names_its_model_in_a_part_of_its_own():
    house = House()
    house.shows(llama=COLD, q4=HOT)
    body = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n\x00\xff\r\n'
        b'--x\r\ncontent-disposition: form-data; name="model"\r\n\r\nllama\r\n--x--\r\n'
    )
    kind = b"multipart/form-data; boundary=x"
    detour = await house.open(body, kind=kind)
    assert detour is not None
    assert detour.look()
    assert detour.asked_as == b'"llama"'
    sent = RenamedBody(detour._body, detour).outgoing()
    assert sent == body.replace(b"llama\r\n", b"llama-q4\r\n")


# Where it goes


async def test_a_resident_model_answers_itself():
    house = House()
    house.shows(llama=HOT, q4=HOT, cpu=HOT)
    detour = await house.opened()
    assert not detour.look()
    assert (goes_to(detour), detour.reason) == (LLAMA, None)


async def test_the_best_resident_rung_answers_for_one_that_loads():
    house = House()
    house.shows(llama=LOADING, q4=HOT, cpu=HOT)
    detour = await house.opened()
    assert detour.look()
    assert (goes_to(detour), detour.reason) == (Q4, Reason.SMALLER_VARIANT)
    assert not detour.look()


async def test_a_cpu_answers_where_its_time_is_less_than_the_load():
    """2 s on the GPU are 8 on CPUs: less than 8 s of load and 2, more than what is left of it."""
    house = House()
    house.shows(llama=LOADING, cpu=HOT)
    detour = await house.opened()
    assert detour.look()
    assert (goes_to(detour), detour.reason) == (CPU, Reason.CPU_FALLBACK)
    await house.clock.advance(3.0)
    assert detour.look()
    assert goes_to(detour) == LLAMA


async def test_measured_times_take_the_place_of_factors():
    house = House()
    house.shows(llama=LOADING, cpu=HOT)
    for model, service_s in ((LLAMA, 1.0), (CPU, 12.0)):
        ticket = Ticket(
            request_id=RequestId("t"), model=model, priority=PriorityClass.REALTIME, arrived_at_s=0
        )
        house.admission.arrive(ticket, ready=True)
        house.admission.end(ticket, service_s)
    assert not (await house.opened()).look()


async def test_a_load_that_is_held_has_no_end():
    house = House()
    house.shows(llama=COLD, cpu=COLD)
    detour = await house.opened()
    assert not detour.look()
    house.told[LLAMA] = Reason.NEVER_FITS
    assert detour.look()
    assert goes_to(detour) == CPU
    house.shows(held={LLAMA: Reason.DRAINING, CPU: Reason.NEVER_FITS}, llama=COLD, cpu=COLD)
    assert detour.look()
    assert goes_to(detour) == LLAMA


async def test_a_name_that_is_not_the_models_is_not_changed():
    house = House()
    house.shows(llama=COLD, q4=HOT)
    for body in (b'{"prompt":"no name"}', b'{"model":"other"}'):
        assert not (await house.opened(body)).look()
    alias = await house.opened(b'{"model": "gpt"}')
    assert alias.look()
    assert alias.asked_as == b'"gpt"'


# What it was refused


async def test_what_is_refused_goes_down_rung_by_rung_and_the_first_refusal_is_told():
    house = House()
    house.shows(llama=FAILED, q4=COLD, cpu=COLD)
    detour = await house.opened()
    first = model_cooldown(LLAMA, "no", 10.0)
    assert detour.steps_down(first)
    assert goes_to(detour) == Q4
    assert detour.steps_down(gone())
    assert goes_to(detour) == CPU
    assert not detour.steps_down(gone())
    assert detour.refusal is first


async def test_a_rung_that_is_refused_leaves_the_model_itself():
    house = House()
    house.shows(llama=LOADING, q4=HOT)
    detour = await house.opened()
    assert detour.look()
    assert detour.steps_down(gone())
    assert goes_to(detour) == LLAMA


async def test_what_says_nothing_of_the_model_is_no_reason_to_go():
    house = House()
    house.shows(llama=COLD, q4=HOT)
    detour = await house.opened()
    assert not detour.steps_down(queue_full("realtime", 1.0))
    assert goes_to(detour) == LLAMA
    assert not (await house.opened(b"{}")).steps_down(gone())


# Bodies and answers


async def renamed_detour(body: bytes = b'{"model":"llama"}') -> tuple[House, Detour]:
    house = House()
    house.shows(llama=COLD, q4=HOT)
    detour = await house.opened(body)
    assert detour.look()
    return house, detour


async def test_a_body_names_the_rung():
    _, detour = await renamed_detour()
    body = RenamedBody(detour._body, detour)
    assert body.outgoing() == b'{"model":"llama-q4"}'
    assert body.outgoing() == b'{"model":"llama-q4"}'
    assert (body.size_bytes, body.can_be_sent_again) == (20, True)
    body.raise_early_end()


async def test_a_large_body_goes_piece_by_piece_as_often_as_it_must():
    text = b"x" * WHOLE_BYTES
    _, detour = await renamed_detour(b'{"model":"llama","prompt":"' + text + b'"}')
    body = RenamedBody(detour._body, detour)
    for _ in range(2):
        sent = body.outgoing()
        assert not isinstance(sent, bytes)
        pieces = [piece async for piece in sent]
        assert b"".join(pieces) == b'{"model":"llama-q4","prompt":"' + text + b'"}'
        assert body.sent_bytes == body.size_bytes


class Answer:
    """An answer in pieces; an error among them is raised."""

    def __init__(self, kind: bytes, *pieces: bytes | Exception, length: bool = False) -> None:
        self.status = 200
        self.headers: RawHeaders = ((b"Content-Type", kind),)
        self.pieces = list(pieces)
        self.is_closed = False
        self.is_here = False
        if length:
            size = sum(len(piece) for piece in pieces if isinstance(piece, bytes))
            self.headers += ((b"Content-Length", b"%d" % size),)

    @property
    def is_complete(self) -> bool:
        return not self.pieces

    async def read(self) -> bytes:
        if not self.pieces:
            return b""
        piece = self.pieces.pop(0)
        if isinstance(piece, Exception):
            raise piece
        return piece

    def rest(self) -> bytes | None:
        if not self.is_here:
            return None
        said = b"".join(piece for piece in self.pieces if isinstance(piece, bytes))
        self.pieces = []
        return said

    async def pour(self, sink: Callable[[bytes], bool]) -> None:
        while self.pieces:
            piece = self.pieces[0]
            assert isinstance(piece, bytes)
            if not sink(piece):
                return
            self.pieces.pop(0)

    def close(self) -> None:
        self.is_closed = True


def answer_of(pieces: Iterable[bytes]) -> tuple[Answer, RenamedAnswer]:
    inner = Answer(b"text/event-stream", *pieces)
    return inner, RenamedAnswer(inner, NameFilter("llama-q4", b'"llama"'))


EVENTS = [b'data: {"mod', b'el":"lla', b'ma-q4"}\n\n', b'data: {"x":"']
RENAMED = b'data: {"model":"llama"}\n\ndata: {"x":"'


async def test_a_stream_is_renamed_as_it_is_read():
    inner, answer = answer_of(EVENTS)
    said = []
    while data := await answer.read():
        said.append(data)
    assert b"".join(said) == RENAMED
    assert answer.is_complete
    assert await answer.read() == b""
    answer.close()
    assert inner.is_closed
    assert answer.status == 200


async def test_what_is_here_is_renamed_at_once():
    inner, answer = answer_of(EVENTS)
    assert answer.rest() is None
    inner.is_here = True
    assert answer.rest() == RENAMED
    assert answer.is_complete


async def test_what_the_caller_does_not_take_is_read_again():
    inner, answer = answer_of(EVENTS)
    taken: list[bytes] = []

    def sink(data: bytes) -> bool:
        if len(taken) == 1:
            return False
        taken.append(data)
        return True

    await answer.pour(sink)
    assert not answer.is_complete
    while data := await answer.read():
        taken.append(data)
    assert b"".join(taken) == RENAMED
    assert inner.is_complete


async def test_a_tail_that_was_held_back_comes_in_the_end():
    _, answer = answer_of([b'{"model":"x"} "mod'])
    taken: list[bytes] = []

    def sink(data: bytes) -> bool:
        taken.append(data)
        return True

    await answer.pour(sink)
    assert not answer.is_complete
    assert taken == [b'{"model":"x"} ']
    assert await answer.read() == b'"mod'


async def test_a_short_document_keeps_an_honest_length():
    house, detour = await renamed_detour()
    inner = Answer(b"application/json", b'{"model":"llama', b'-q4","a":1}', length=True)
    answer = await with_asked_name(inner, detour, house.clock, 10.0)
    body = await answer.read()
    assert body == b'{"model":"llama","a":1}'
    assert dict(answer.headers)[b"Content-Length"] == b"%d" % len(body)
    assert inner.is_closed


async def test_other_answers_pass_as_they_come():
    house, detour = await renamed_detour()
    audio = Answer(b"audio/wav", b"RIFF", length=True)
    assert await with_asked_name(audio, detour, house.clock, 10.0) is audio
    packed = Answer(b"application/json", b"\x1f")
    packed.headers += ((b"content-encoding", b"gzip"),)
    assert await with_asked_name(packed, detour, house.clock, 10.0) is packed
    long = Answer(b"application/json", b'{"model":"llama-q4"}')
    long.headers += ((b"content-length", b"%d" % (WHOLE_BYTES + 1)),)
    answer = await with_asked_name(long, detour, house.clock, 10.0)
    assert [name for name, _ in answer.headers] == [b"Content-Type"]
    assert await answer.read() == b'{"model":"llama"}'


async def test_a_document_that_breaks_off_or_does_not_come_is_told():
    house, detour = await renamed_detour()
    broken = Answer(b"application/json", b'{"mo', Transient("cut"), length=True)
    with pytest.raises(Problem) as problem:
        await with_asked_name(broken, detour, house.clock, 10.0)
    assert (problem.value.status, broken.is_closed) == (502, True)

    class Silent(Answer):
        async def read(self) -> bytes:
            await asyncio.Event().wait()
            return b""

    silent = Silent(b"application/json", b"{}", length=True)
    waiting = asyncio.create_task(with_asked_name(silent, detour, house.clock, 10.0))
    await house.clock.advance(11.0)
    with pytest.raises(Problem) as problem:
        await waiting
    assert (problem.value.status, silent.is_closed) == (504, True)
