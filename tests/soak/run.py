"""One run: a stack in a folder of its own, the load, a look at everything every few seconds."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import aiohttp

from adapters.clock import ScaledClock
from adapters.embedded_server import EmbeddedServer
from adapters.redis_client import connect
from adapters.redis_events import RedisEventLog
from cli.stack import Stack
from contracts.events import AnyEvent
from emulator.models import EmulatedModel
from tests.soak.load import CAPACITY_MB, HOUR_S, PROBED, Course, Load, Told, models, requests
from tests.soak.past import past_events
from tests.soak.sampling import Sample, Sampler

HISTORY_HOURS = 26.0
"""Hours of earlier traffic in the event log, so that rings of a day are full from the start."""

SEED_BATCH = 1000

START_REAL_S = 600.0
"""Real seconds that a busy machine may take until all speak."""

DRAIN_REAL_S = 15.0
"""Real seconds after the last answer in which connections and jobs may end."""


@dataclass(slots=True, kw_only=True)
class Record:
    """What a run has seen.

    Attributes
    ----------
    samples : list
        By hour of the course.
    calm, drained : dict
        Before the first caller and after the last.
    """

    samples: list[tuple[float, Sample]] = field(default_factory=list)
    calm: Sample = field(default_factory=dict)
    drained: Sample = field(default_factory=dict)
    told: Told = field(default_factory=Told)
    restarts: Counter[str] = field(default_factory=Counter)
    tracebacks: Counter[str] = field(default_factory=Counter)
    sample_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How to run; times in real seconds unless they say hours."""

    seed: int
    hours: float
    wave_hours: float
    time_scale: float
    every_s: float
    probes_per_s: float
    logs: Path


async def run(wanted: Wanted, folder: Path, progress: Callable[[str], None]) -> Record:
    """Run to the end of the course. ``folder`` must have a short path: sockets are in it."""
    now_s = time.time()
    midnight = datetime.fromtimestamp(now_s, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    environ = _environment(wanted, anchor=(now_s, midnight.timestamp()))
    clock = ScaledClock.from_environment(environ)
    data = folder / "data"
    record = Record()
    async with EmbeddedServer(data) as server:
        environ["HEADSTART_REDIS_URL"] = server.url
        store = connect(server.url)
        try:
            await _seed(RedisEventLog(store), wanted, clock.now_s())
            arguments = ["--models", str(_models_file(folder)), "--capacity-mb", str(CAPACITY_MB)]
            stack = Stack(environ, data, emulator_args=arguments, start_s=START_REAL_S)
            async with stack, aiohttp.ClientSession() as session:
                await _until_all_speak(stack, session)
                course = Course(
                    seed=wanted.seed,
                    begin_s=clock.now_s(),
                    hours=wanted.hours,
                    wave_hours=wanted.wave_hours,
                )
                sampler = Sampler(stack, store, session, store_pid=server.pid)
                record.calm = await sampler.sample()
                quiet = asyncio.Lock()
                load = Load(
                    stack, session, clock, course, quiet, record.told,
                    probes_per_s=wanted.probes_per_s,
                )  # fmt: skip
                looking = asyncio.create_task(
                    _look(record, sampler, clock, course, quiet, wanted, progress)
                )
                loading = asyncio.create_task(load.run())
                done, _ = await asyncio.wait(
                    {looking, loading}, return_when=asyncio.FIRST_COMPLETED
                )
                for task in (looking, loading):
                    if task not in done:
                        task.cancel()
                await asyncio.gather(looking, loading, return_exceptions=True)
                for task in done:
                    task.result()
                progress("the last answer is there; what is left must end now")
                await asyncio.sleep(DRAIN_REAL_S)
                record.drained = await sampler.sample()
                record.restarts = sampler.restarts
        finally:
            await store.aclose()
    record.tracebacks = _tracebacks(data / "logs")
    wanted.logs.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(data / "logs", wanted.logs, dirs_exist_ok=True)
    return record


async def _look(
    record: Record,
    sampler: Sampler,
    clock: ScaledClock,
    course: Course,
    quiet: asyncio.Lock,
    wanted: Wanted,
    progress: Callable[[str], None],
) -> None:
    said_hour = -1
    while True:
        began_s = time.perf_counter()
        async with quiet:
            hour = course.hour(clock.now_s())
            sample = await sampler.sample()
        took_s = time.perf_counter() - began_s
        record.sample_s += took_s
        record.samples.append((hour, sample))
        if int(hour) > said_hour:
            said_hour = int(hour)
            progress(_line(hour, course, record))
        await asyncio.sleep(max(0.1, wanted.every_s - took_s))


def _line(hour: float, course: Course, record: Record) -> str:
    figures, told = record.samples[-1][1], record.told
    parts = [
        f"{name} {figures.get(f'{name}.rss_bytes', 0.0) / 2**20:.0f}"
        for name in ("gateway", "control", "predictor", "controller", "workers", "redis")
    ]
    asked = sum(told.statuses.values())
    return (
        f"hour {hour:5.1f} of {course.hours:g}: {asked} answers, {len(told.probes)} probes, "
        f"{told.events} events; MiB: {', '.join(parts)}"
    )


async def _seed(log: RedisEventLog, wanted: Wanted, now_s: float) -> None:
    """The hours before: the same office on the same wave, and the probes."""
    course = Course(
        seed=wanted.seed, begin_s=now_s, hours=wanted.hours, wave_hours=wanted.wave_hours
    )
    begin_s = now_s - HISTORY_HOURS * HOUR_S
    office = [(r.due_s, r.model, r.service_s) for r in requests(course, begin_s, now_s)]
    every_s = wanted.time_scale / wanted.probes_per_s
    probes = [
        (begin_s + number * every_s, PROBED, 0.1)
        for number in range(int(HISTORY_HOURS * HOUR_S / every_s))
    ]
    for events in _batched(past_events(sorted(office + probes))):
        await log.append(events)


async def _until_all_speak(stack: Stack, session: aiohttp.ClientSession) -> None:
    """The controller has shown its world, the predictor forecasts, the gateway has a table."""
    async with asyncio.timeout(START_REAL_S):
        while not await _speak(stack, session):  # noqa: ASYNC110 - they are other processes
            await asyncio.sleep(0.2)


async def _speak(stack: Stack, session: aiohttp.ClientSession) -> bool:
    try:
        async with session.get(stack.control_url + "/readyz") as answer:
            ready = answer.status == 200
        async with session.get(stack.control_url + "/v1/models") as answer:
            listed = answer.status == 200 and bool((await answer.json())["data"])
        async with session.get(stack.gateway_url + "/headstart/readyz") as answer:
            routed = answer.status == 200 and (await answer.json())["routing"] is not None
    except aiohttp.ClientError:
        return False
    return ready and listed and routed


def _batched(events: list[AnyEvent]) -> Iterator[tuple[AnyEvent, ...]]:
    for start in range(0, len(events), SEED_BATCH):
        yield tuple(events[start : start + SEED_BATCH])


def _environment(wanted: Wanted, *, anchor: tuple[float, float]) -> dict[str, str]:
    real_s, clock_s = anchor
    return {
        "HEADSTART_ENV": "dev",
        "HEADSTART_TIME_SCALE": repr(wanted.time_scale),
        "HEADSTART_TIME_ANCHOR": f"{real_s!r}:{clock_s!r}",
        "HEADSTART_SCHEDULER__MODE": "active",
        "HEADSTART_MEMORY__RESERVE_RATIO": "0",
        "HEADSTART_LOGGING__LEVEL": "info",
    }


def _models_file(folder: Path) -> Path:
    """The models as the emulator reads them."""
    file = folder / "models.json"
    file.write_text(json.dumps({"models": [_written(model) for model in models().values()]}))
    return file


def _written(model: EmulatedModel) -> dict[str, object]:
    kept = ("name", "kind", "footprint_mb", "load_s", "parallel", "tokens_per_s")
    return {name: getattr(model, name) for name in kept}


def _tracebacks(logs: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for file in logs.glob("*.log*"):
        found[file.name] += file.read_text(errors="replace").count("Traceback")
    return +found
