"""Reading a log that Headstart recorded: from its Redis, or from a file that was exported."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Literal

from adapters.codec import EVENT_TYPES, decode, encode
from adapters.redis_client import connect
from adapters.redis_events import RedisEventLog
from adapters.redis_stores import RedisSnapshotStore
from contracts.errors import Invalid
from contracts.events import AnyEvent
from contracts.world import WorldSnapshot

_AT_ONCE = 5000
_SCHEMES = ("redis://", "rediss://", "unix://", "redis+", "rediss+")


def read_log(source: str) -> tuple[list[AnyEvent], WorldSnapshot | None, int]:
    """Events in the order of the log, the last world, and how many records could not be read.

    Raises
    ------
    Invalid
        There is no such file, or it holds no event.
    Transient
        Redis is away.
    """
    if source.startswith(_SCHEMES):
        return asyncio.run(_from_redis(source))
    return _from_file(Path(source))


def write_log(path: Path, events: list[AnyEvent], world: WorldSnapshot | None) -> None:
    """One record a line, the world last; compressed where the name ends in ``.gz``."""
    with _open(path, "wb") as file:
        for record in (*events, *(() if world is None else (world,))):
            file.write(encode(record) + b"\n")


async def _from_redis(url: str) -> tuple[list[AnyEvent], WorldSnapshot | None, int]:
    client = connect(url)
    try:
        log, events, place = RedisEventLog(client), list[AnyEvent](), "0"
        while entries := await log.read_after(place, count=_AT_ONCE):
            events += [entry.value for entry in entries]
            place = entries[-1].entry_id
        world = await RedisSnapshotStore(client).world()
    finally:
        await client.aclose()
    if not events:
        raise Invalid("the event log in this Redis is empty")
    return events, world, log.skipped


def _from_file(path: Path) -> tuple[list[AnyEvent], WorldSnapshot | None, int]:
    events: list[AnyEvent] = []
    world: WorldSnapshot | None = None
    skipped = 0
    for line in _lines(path):
        record = decode(line)
        if isinstance(record, EVENT_TYPES):
            events.append(record)
        elif isinstance(record, WorldSnapshot):
            world = record
        else:
            skipped += 1
    if not events:
        raise Invalid(
            f"{path}: holds no event; `headstart simulate --events URL --export FILE` writes one"
        )
    return events, world, skipped


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with _open(path, "rb") as file:
            yield from (line for line in file if line.strip())
    except (OSError, EOFError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Invalid(f"{path}: cannot be read: {why.lower()}") from error


def _open(path: Path, mode: Literal["rb", "wb"]) -> AbstractContextManager[IO[bytes]]:
    return gzip.open(path, mode) if path.suffix == ".gz" else path.open(mode)  # type: ignore[return-value]  # a gzip file is no IO[bytes] to mypy
