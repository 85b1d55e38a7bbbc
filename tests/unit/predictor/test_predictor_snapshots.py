"""What was learned, kept and gone on from: exactly as if the process had never ended."""

from __future__ import annotations

import asyncio
import io
import os
import random
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from adapters.champion_files import DiskChampionStore
from adapters.engine_snapshots import FOLDER, DiskEngineSnapshots
from contracts.config import PredictorConfig
from contracts.errors import Invalid, Permanent
from contracts.events import (
    AnyEvent,
    FirstTokenSent,
    IntentKind,
    IntentSignal,
    LoadCause,
    ModelLoaded,
    PriorityClass,
    RequestCompleted,
    RequestReceived,
)
from contracts.ids import ModelId, NodeId, RequestId
from predictor.batch_challenger import BoostedChallenger
from predictor.engine import PredictorEngine
from predictor.engine_snapshot import Learned, dump, load
from predictor.history import HistoryBook
from predictor.learned_kinds import KINDS
from predictor.library_versions import learned_with
from predictor.service import PredictorPorts, PredictorService
from predictor.snapshots import SNAPSHOT_S
from simulator.clock import VirtualClock
from simulator.memory_history import MemoryHistoryStore
from simulator.memory_ports import MemoryEventLog, MemoryForecastStore

START_S = 1_000_000.0 - 1_000_000.0 % 3600.0
MADE_WITH: Mapping[str, str] = {"code": "a", "python": "3"}
T = TypeVar("T")


def drawn(received: Callable[..., RequestReceived], count: int) -> list[RequestReceived]:
    rng = random.Random(4)
    return [
        received(f"m{rng.randrange(5)}", START_S + 12.0 * number, f"e{number}")
        for number in range(count)
    ]


def lived(received: Callable[..., RequestReceived], count: int) -> Iterator[AnyEvent]:
    """Requests in all their stages, of models that are forgotten too, and a change of habits."""
    rng = random.Random(5)
    for number in range(count):
        at_s = START_S + 90.0 * number
        is_later = number > 0.4 * count
        first = 4 * is_later
        came = received(f"m{first + min(rng.randrange(7), rng.randrange(5))}", at_s, f"e{number}")
        yield came
        for more in range(4 * is_later):
            yield received(str(came.model), at_s, f"f{number}-{more}")
        about: dict[str, Any] = {"source": "test", "model": came.model}
        asked: dict[str, Any] = {**about, "request_id": came.request_id}
        yield IntentSignal(
            event_id=f"i{number}", at_s=at_s, client="c", kind=IntentKind.MODEL_PICKED, **about
        )
        yield ModelLoaded(
            event_id=f"l{number}",
            at_s=at_s,
            node=NodeId("n"),
            cause=LoadCause.PREFETCH,
            load_s=rng.random(),
            footprint_bytes=None,
            **about,
        )
        yield FirstTokenSent(event_id=f"t{number}", at_s=at_s, ttft_s=rng.random(), **asked)
        if number % 9:
            yield RequestCompleted(
                event_id=f"d{number}",
                at_s=at_s,
                status=200,
                duration_s=rng.random(),
                service_s=rng.random(),
                input_tokens=rng.randrange(99),
                output_tokens=rng.randrange(99),
                **asked,
            )


def learned(engine: PredictorEngine) -> Learned:
    return Learned(engine, HistoryBook(), "7-0")


def packed(engine: PredictorEngine) -> io.BytesIO:
    file = io.BytesIO()
    dump(learned(engine), MADE_WITH, file)
    file.seek(0)
    return file


def test_a_later_life_goes_on_to_the_last_digit(received: Callable[..., RequestReceived]) -> None:
    """A day and a third, so that every method has learned, a habit changed, a model went."""
    events = list(lived(received, 1280))
    config = PredictorConfig(publish_s=300.0, max_models=8)
    one, other = PredictorEngine(config), PredictorEngine(config)
    book, half = HistoryBook(), len(events) * 4 // 5
    for event in events[:half]:
        one.pass_time(event.at_s, steps=1000)
        one.observe(event)
        book.observe(event, known=True)
    file = io.BytesIO()
    dump(Learned(one, book, "7-0"), MADE_WITH, file)
    file.seek(0)
    found = load(file, MADE_WITH)
    found.put_into(other)
    assert found.place == "7-0"
    assert one.drifts > 0
    assert one.forgotten > 0
    for event in events[half:]:
        for engine, pages in ((one, book), (other, found.book)):
            engine.pass_time(event.at_s, steps=1000)
            engine.observe(event)
            pages.observe(event, known=True)
    end_s = START_S + 90.0 * 1280 + 10.0

    assert one.tick(end_s) == other.tick(end_s)
    assert one.drifts == other.drifts
    assert book.pages() == found.book.pages()
    assert all(forecast.signals for forecast in other.renewals(end_s))


def test_what_was_published_is_said_anew_at_once(received: Callable[..., RequestReceived]) -> None:
    one, other = PredictorEngine(PredictorConfig()), PredictorEngine(PredictorConfig())
    one.observe(received("m", START_S))
    said = one.tick(START_S + 1.0)
    load(packed(one), MADE_WITH).put_into(other)

    assert one.tick(START_S + 2.0) == ()
    assert len(other.tick(START_S + 2.0)) == len(said) == 1


def test_a_challenger_is_not_kept_but_taken_anew(received: Callable[..., RequestReceived]) -> None:
    engine = PredictorEngine(PredictorConfig())
    engine.observe(received("m", START_S))
    engine.take_challenger(BoostedChallenger(trees=(), trained_until_s=START_S), promoted=True)
    found = load(packed(engine), MADE_WITH).engine
    found.take_challenger(None)

    assert found.tick(START_S + 60.0)[0].model == "m"


def test_no_list_or_mapping_that_is_kept_belongs_to_two(
    received: Callable[..., RequestReceived],
) -> None:
    """Of them each is written where it is met: what two share would be two afterwards."""
    engine = PredictorEngine(PredictorConfig(max_models=3))
    for event in lived(received, 40):
        engine.pass_time(event.at_s, steps=1000)
        engine.observe(event)
    taken = {kind.cls: kind.take for kind in KINDS}
    met: dict[int, object] = {}
    ahead: list[Any] = [engine]
    while ahead:
        found = ahead.pop()
        if isinstance(found, list | dict | set | deque):
            assert id(found) not in met, found
            met[id(found)] = found
            ahead += [*found.values(), *found] if isinstance(found, dict) else found
        elif isinstance(found, tuple):
            ahead += found
        elif type(found) in taken and id(found) not in met:
            met[id(found)] = found
            values = taken[type(found)](found)
            met[id(values)] = values  # or its place in memory is taken by the next
            ahead += values
    assert len(met) > 200


def test_what_was_made_with_something_else_is_not_used() -> None:
    file = packed(PredictorEngine(PredictorConfig()))
    with pytest.raises(Invalid, match="made with another code"):
        load(file, {**MADE_WITH, "code": "b"})
    with pytest.raises(Invalid, match="made with another code, python"):
        load(io.BytesIO(b"[1]\n"), MADE_WITH)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (3.0, "holds something else"),
        ([0, [1, 2, 3]], "holds something else"),
        ([99 + len(KINDS)], "IndexError"),
        ([9, 1], "ValueError"),
    ],
)
def test_what_makes_anything_else_is_not_read(body: object, said: str) -> None:
    data = msgspec.msgpack.encode([[], body])
    header = b'{"code": "a", "python": "3"}\n'
    with pytest.raises(Invalid, match=said):
        load(io.BytesIO(header + len(data).to_bytes(8, "little") + data), MADE_WITH)


def test_what_is_not_kept_is_told(received: Callable[..., RequestReceived]) -> None:
    engine = PredictorEngine(PredictorConfig())
    engine.champion = print  # type: ignore[assignment]  # as a part that nobody listed
    with pytest.raises(Invalid, match="what was learned: holds a builtins"):
        packed(engine)


@pytest.fixture(scope="module")
def whole() -> bytes:
    engine = PredictorEngine(PredictorConfig(publish_s=600.0, max_models=2))
    for number in range(150):
        at_s = START_S + 700.0 * number
        engine.pass_time(at_s, steps=1000)
        name = RequestId(str(number))
        about: dict[str, Any] = {"source": "s", "request_id": name, "model": ModelId("m")}
        engine.observe(
            RequestReceived(
                event_id=f"a{number}",
                at_s=at_s,
                operation="chat",
                priority=PriorityClass.REALTIME,
                client="c",
                stream=True,
                **about,
            )
        )
        engine.observe(FirstTokenSent(event_id=f"b{number}", at_s=at_s, ttft_s=1.0, **about))
    return packed(engine).getvalue()


@pytest.mark.case("P128")
@given(data=st.data())
def test_a_damaged_one_is_refused_or_read_and_nothing_else(whole: bytes, data: Any) -> None:
    begins = whole.index(b"\n") + 1
    length = int.from_bytes(whole[begins : begins + 8], "little")
    damaged = bytearray(whole)
    for place in data.draw(st.lists(st.integers(0, begins + 8 + length), min_size=1, max_size=8)):
        damaged[place] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(whole)) | st.just(len(whole))) :]
    tracemalloc.start()
    try:
        with suppress(Invalid):
            load(io.BytesIO(damaged), MADE_WITH)
        assert tracemalloc.get_traced_memory()[1] < 16 * len(whole)
    finally:
        tracemalloc.stop()


def test_what_is_none_is_said_to_be_none() -> None:
    with pytest.raises(Invalid, match="is none"):
        load(io.BytesIO(b"\0\1"), MADE_WITH)


def test_code_and_settings_are_part_of_what_it_was_made_with() -> None:
    usual = learned_with(PredictorConfig())

    assert usual == learned_with(PredictorConfig(lease_s=9.0))
    assert usual != learned_with(PredictorConfig(publish_s=5.0))
    assert len(usual["code"]) == 64


class MemorySnapshots:
    """One snapshot in memory; ``fault`` as elsewhere."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.fault: Permanent | None = None
        self.writes = 0

    def mend(self) -> None:
        self.fault = None

    async def read(self, load: Callable[[BinaryIO], T]) -> T | None:
        if self.fault is not None:
            raise self.fault
        return None if self.data is None else load(io.BytesIO(self.data))

    async def write(self, dump: Callable[[BinaryIO], None]) -> bool:
        await asyncio.sleep(0.0)
        if self.fault is not None:
            raise self.fault
        file = io.BytesIO()
        dump(file)
        self.data = file.getvalue()
        self.writes += 1
        return self.writes != 2


class Life:
    """Lives of a predictor, one after another, over the same stores."""

    def __init__(self) -> None:
        self.clock = VirtualClock(START_S)
        self.log = MemoryEventLog(clock=self.clock)
        self.history = MemoryHistoryStore()
        self.snapshots = MemorySnapshots()
        self.store = MemoryForecastStore(clock=self.clock)

    async def run(
        self, seconds: float, *, half_way: Callable[[], None] = lambda: None
    ) -> PredictorService:
        ports = PredictorPorts(
            clock=self.clock,
            events=self.log,
            forecasts=self.store,
            history=self.history,
            snapshots=self.snapshots,
        )
        service = PredictorService(
            PredictorEngine(PredictorConfig()), ports, publish_s=10.0, made_with=MADE_WITH
        )
        running = asyncio.create_task(service.run())
        await self.clock.advance(seconds / 2)
        half_way()
        await self.clock.advance(seconds / 2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await service.close()
        return service


async def test_the_next_life_reads_only_what_came_since(
    received: Callable[..., RequestReceived],
) -> None:
    life, events = Life(), drawn(received, 60)
    await life.log.append(tuple(events[:40]))
    first = await life.run(SNAPSHOT_S + 30.0)
    await life.log.append(tuple(events[40:]))
    second = await life.run(15.0)

    assert first.events_read == 40
    assert second.events_read == 20
    assert second.beat().models == 5
    for page in await life.history.read(events[0].model):  # type: ignore[arg-type]  # it has one
        asked = sum(event.model == events[0].model for event in events)
        assert sum(bucket.arrivals for bucket in page.buckets) == asked


async def test_one_of_another_log_is_not_used(received: Callable[..., RequestReceived]) -> None:
    life, events = Life(), drawn(received, 60)
    await life.log.append(tuple(events[:40]))
    await life.run(SNAPSHOT_S + 30.0)
    life.log = MemoryEventLog(clock=life.clock)
    assert (await life.run(1.0)).events_read == 0
    await life.log.append(tuple(events[40:]))

    assert (await life.run(1.0)).events_read == 20


async def test_a_snapshot_that_cannot_be_read_or_written_is_told_and_done_without(
    received: Callable[..., RequestReceived],
) -> None:
    life = Life()
    await life.log.append(tuple(drawn(received, 20)))
    life.snapshots.fault = Permanent("disk")
    with capture_logs() as lines:
        service = await life.run(5 * SNAPSHOT_S, half_way=life.snapshots.mend)

    assert service.events_read == 20
    assert [line["event"] for line in lines if "snapshot" in line["event"]] == [
        "predictor_snapshot_refused",
        "predictor_snapshot_not_written",
        "predictor_snapshot_written_again",
        "predictor_snapshot_written",
    ]


def writer(data: bytes) -> Callable[[BinaryIO], None]:
    def write(file: BinaryIO) -> None:
        file.write(data)

    return write


async def test_a_file_is_signed_and_a_young_one_is_left(tmp_path: Path) -> None:
    snapshots = DiskEngineSnapshots(tmp_path, DiskChampionStore(tmp_path), every_s=300.0)
    assert await snapshots.read(lambda file: file.read()) is None
    assert await snapshots.write(writer(b"what was learned"))
    assert not await snapshots.write(writer(b"again"))

    assert await snapshots.read(lambda file: file.read()) == b"what was learned"
    (path,) = (tmp_path / FOLDER).iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(Invalid, match="not signed"):
        await snapshots.read(lambda file: file.read())


async def test_what_a_dead_writer_left_is_swept_and_a_full_disk_is_told(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    left = folder / "learned.snapshot.1.raw"
    left.write_bytes(b"x")
    os.utime(left, (1.0, 1.0))
    snapshots = DiskEngineSnapshots(tmp_path, DiskChampionStore(tmp_path), every_s=0.0)
    await snapshots.write(writer(b"y"))
    assert not left.exists()

    def full(_file: BinaryIO) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(Permanent, match="No space left"):
        await snapshots.write(full)
    assert [path.name for path in folder.iterdir()] == ["learned.snapshot"]


async def test_a_bug_in_what_is_kept_is_told_and_forecasts_go_on(
    received: Callable[..., RequestReceived],
) -> None:
    class Buggy(MemorySnapshots):
        async def write(self, dump: Callable[[BinaryIO], None]) -> bool:
            raise LookupError("nobody thought of this")

    life = Life()
    life.snapshots = Buggy()
    await life.log.append(tuple(drawn(received, 20)))
    with capture_logs() as lines:
        service = await life.run(3 * SNAPSHOT_S)

    assert service.events_read == 20
    told = [line for line in lines if line["event"] == "predictor_snapshot_failed"]
    assert [str(line["exc_info"]) for line in told] == ["nobody thought of this"] * len(told)
    assert len(told) >= 2
