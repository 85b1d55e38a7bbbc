"""What was learned, kept and gone on from: exactly as if the process had never ended."""

from __future__ import annotations

import asyncio
import io
import os
import pickle
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, TypeVar

import pytest
from structlog.testing import capture_logs

from adapters.champion_files import DiskChampionStore
from adapters.engine_snapshots import FOLDER, DiskEngineSnapshots
from contracts.config import PredictorConfig
from contracts.errors import Invalid, Permanent
from contracts.events import RequestReceived
from predictor.engine import PredictorEngine
from predictor.engine_snapshot import Learned, dump, load
from predictor.history import HistoryBook
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


def learned(engine: PredictorEngine) -> Learned:
    return Learned(engine, HistoryBook(), "7-0")


def packed(engine: PredictorEngine) -> io.BytesIO:
    file = io.BytesIO()
    dump(learned(engine), MADE_WITH, file)
    file.seek(0)
    return file


def test_a_later_life_goes_on_to_the_last_digit(received: Callable[..., RequestReceived]) -> None:
    events = drawn(received, 400)
    one = PredictorEngine(PredictorConfig())
    for event in events[:300]:
        one.pass_time(event.at_s, steps=1000)
        one.observe(event)
    other = PredictorEngine(PredictorConfig())
    found = load(packed(one), MADE_WITH)
    found.put_into(other)
    assert found.place == "7-0"
    for event in events[300:]:
        for engine in (one, other):
            engine.pass_time(event.at_s, steps=1000)
            engine.observe(event)
    end_s = START_S + 12.0 * 400 + 10.0

    assert one.tick(end_s) == other.tick(end_s)


def test_what_was_made_with_something_else_is_not_used() -> None:
    file = packed(PredictorEngine(PredictorConfig()))
    with pytest.raises(Invalid, match="made with another code"):
        load(file, {**MADE_WITH, "code": "b"})


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("harm",)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (pickle.dumps(Evil()), "names builtins.print"),
        (b"cpredictor.engine_snapshot\nload\n.", "is no class"),
        (
            b"\x80\x04\x8c\x11predictor.service\x8c\x23asyncio.subprocess.subprocess.Popen\x93.",
            "is no class of ours",
        ),
        (pickle.dumps(3.0), "holds something else"),
        (b"\x80\x05nonsense", "Error"),
        (b"", "EOFError"),
    ],
)
def test_what_names_anything_else_is_not_read(body: bytes, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        load(io.BytesIO(b'{"code": "a", "python": "3"}\n' + body), MADE_WITH)


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
