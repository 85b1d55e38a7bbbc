"""``headstart bench batches``: what a batch costs people on the same GPU, and what it needs.

Three runs of a whole stack against the emulator, each with the same people: alone, with a batch
through the Batch API, and with a plain client that sends the same lines in their order, as many
at once.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import typer

from cli.stack import Stack
from cli.traffic import SERVICE_HEADER
from simulator.workloads import guess_workload, load_workload

MODELS = tuple(f"bench-{letter}" for letter in "abcde")
FOOTPRINT_MB, LOAD_S, CAPACITY_MB = 4000, 8, 9000
"""Five models of which two fit."""

PEOPLE = MODELS[:3]
"""The models that people use: three, so that they swap without any batch too."""

PEOPLE_GAP_S = 20.0
PEOPLE_SERVICE_S = 2.0
RUNS = ("people alone", "batch", "plain client")
_LOOK_REAL_S = 0.2
_CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One recorded request of somebody."""

    at_s: float
    model: str
    service_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What one run showed; times in the emulator's seconds."""

    name: str
    lines: int
    took_s: float
    loads: int
    people: int
    people_p50_wait_s: float | None
    people_p95_wait_s: float | None
    failed: int

    def as_row(self) -> dict[str, Any]:
        """As ``--json`` tells it."""
        rate = self.lines / self.took_s if self.lines and self.took_s else None
        return {
            "run": self.name,
            "lines": self.lines,
            "took_s": round(self.took_s, 1),
            "lines_per_s": None if rate is None else round(rate, 2),
            "loads": self.loads,
            "people_n": self.people,
            "people_p50_wait_s": self.people_p50_wait_s,
            "people_p95_wait_s": self.people_p95_wait_s,
            "failed": self.failed,
        }


def register(bench: typer.Typer) -> None:
    """Add the benchmark."""
    bench.command("batches")(bench_batches)


def bench_batches(
    lines: Annotated[int, typer.Option(min=10, max=50_000, help="Lines of the batch.")] = 10_000,
    alone_minutes: Annotated[
        float, typer.Option(min=1.0, help="How long people are watched without a batch.")
    ] = 30.0,
    at_once: Annotated[int, typer.Option(min=1, max=64, help="Requests of the plain client.")] = 8,
    time_scale: Annotated[float, typer.Option(min=1.0, max=60.0, help="Speed of time.")] = 15.0,
    seed: Annotated[int, typer.Option(min=0, help="What people and lines are drawn from.")] = 1,
    people_trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="People's requests as recorded there; else drawn ones."),
    ] = None,
    people_from_hour: Annotated[
        float, typer.Option(min=0.0, help="Hour of the recording at which they begin.")
    ] = 8.0,
    without_plain: Annotated[
        bool, typer.Option("--without-plain", help="Leave the plain client out: it takes long.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One object as the last line.")] = False,
) -> None:
    """Loads, time and the waits of people, with the Batch API and with a plain client."""
    recorded = None if people_trace is None else _recorded(people_trace, 3600.0 * people_from_hour)
    arms = asyncio.run(
        _measured(
            lines=lines,
            recorded=recorded,
            alone_s=60.0 * alone_minutes,
            at_once=at_once,
            time_scale=time_scale,
            seed=seed,
            runs=RUNS[:-1] if without_plain else RUNS,
        )
    )
    rows = [arm.as_row() for arm in arms]
    for row in rows:
        typer.echo("  ".join(f"{name} {value}" for name, value in row.items()))
    if as_json:
        typer.echo(json.dumps({"rows": rows, "time_scale": time_scale, "seed": seed}))


def _recorded(trace: Path, from_s: float) -> tuple[Visit, ...]:
    """People's requests from ``from_s`` on: every model there is played by one of three."""
    workload = load_workload(guess_workload(trace), trace)
    return tuple(
        Visit(
            at_s=one.at_s - from_s,
            model=PEOPLE[zlib.crc32(one.model.encode()) % len(PEOPLE)],
            service_s=one.service_s,
        )
        for one in workload.arrivals
        if one.at_s >= from_s
    )


async def _measured(
    *,
    lines: int,
    recorded: Sequence[Visit] | None,
    alone_s: float,
    at_once: int,
    time_scale: float,
    seed: int,
    runs: Sequence[str],
) -> list[Arm]:
    arms = []
    for name in runs:
        sys.stderr.write(f"headstart: {name}\n")
        async with _bench(time_scale) as bench:
            people = asyncio.create_task(
                bench.people(random.Random(seed)) if recorded is None else bench.visits(recorded)
            )
            mark, start_s = await bench.mark(), bench.now_s()
            done = 0
            if name == "people alone":
                await asyncio.sleep(alone_s / time_scale)
            elif name == "batch":
                done = await bench.batch(lines, seed)
            else:
                done = await bench.plain(lines, seed, at_once)
            took_s = bench.now_s() - start_s
            people.cancel()
            await asyncio.wait({people})
            arms.append(await bench.arm(name, done, took_s, mark))
    return arms


@asynccontextmanager
async def _bench(time_scale: float) -> AsyncIterator[_Bench]:
    models = [
        {"name": name, "footprint_mb": FOOTPRINT_MB, "load_s": LOAD_S, "tokens_per_s": 200}
        for name in MODELS
    ]
    # Paths of Unix sockets are short.
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as folder:
        file = Path(folder) / "models.json"
        file.write_text(json.dumps({"models": models}))
        stack = Stack(
            {
                "HEADSTART_ENV": "dev",
                "HEADSTART_TIME_SCALE": f"{time_scale:g}",
                "HEADSTART_SCHEDULER__MODE": "active",
                "HEADSTART_MEMORY__RESERVE_RATIO": "0",
            },
            Path(folder) / "data",
            emulator_args=["--models", str(file), "--capacity-mb", str(CAPACITY_MB)],
        )
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(limit=0)
        async with stack, aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            bench = _Bench(stack, session, time_scale)
            await bench.until_ready()
            yield bench


class _Bench:
    """One stack, the people who use it, and what is asked of it beside them."""

    def __init__(self, stack: Stack, session: aiohttp.ClientSession, scale: float) -> None:
        self._stack = stack
        self._session = session
        self._scale = scale
        self._waits_s: list[float] = []
        self._failed = 0

    def now_s(self) -> float:
        return asyncio.get_running_loop().time() * self._scale

    async def until_ready(self) -> None:
        while True:
            async with self._session.get(f"{self._stack.control_url}/v1/models") as answer:
                if answer.status == 200 and (await answer.json())["data"]:
                    return
            await asyncio.sleep(_LOOK_REAL_S)

    async def mark(self) -> int:
        async with self._session.get(f"{self._stack.emulator_url}/emulator/state") as answer:
            return int((await answer.json())["last_seq"])

    async def people(self, chance: random.Random) -> None:
        """One after another at random moments, for ever; each has a conversation of some turns."""
        talks: set[asyncio.Task[None]] = set()
        try:
            while True:
                await asyncio.sleep(chance.expovariate(1.0 / (3 * PEOPLE_GAP_S)) / self._scale)
                turns = [chance.expovariate(1.0 / PEOPLE_GAP_S) for _ in range(3)]
                talk = asyncio.create_task(self._talk(chance.choice(PEOPLE), turns))
                talks.add(talk)
                talk.add_done_callback(talks.discard)
        finally:
            for talk in talks:
                talk.cancel()

    async def visits(self, recorded: Sequence[Visit]) -> None:
        """Each at its time, whatever became of those before; until the recording ends."""
        began_s = self.now_s()
        asks: set[asyncio.Task[None]] = set()
        try:
            for visit in recorded:
                rest_s = began_s + visit.at_s - self.now_s()
                await asyncio.sleep(max(0.0, rest_s) / self._scale)
                ask = asyncio.create_task(self._ask(visit.model, visit.service_s))
                asks.add(ask)
                ask.add_done_callback(asks.discard)
            await asyncio.gather(*asks)
        finally:
            for ask in asks:
                ask.cancel()

    async def _talk(self, model: str, pauses_s: list[float]) -> None:
        for pause_s in pauses_s:
            await self._ask(model, PEOPLE_SERVICE_S)
            await asyncio.sleep(pause_s / self._scale)

    async def _ask(self, model: str, service_s: float) -> None:
        start_s = self.now_s()
        if await self._chat(model, {SERVICE_HEADER: f"{service_s:.3f}"}) == 200:
            self._waits_s.append(max(0.0, self.now_s() - start_s - service_s))
        else:
            self._failed += 1

    async def _insist(self, model: str, headers: dict[str, str]) -> None:
        if await self._chat(model, headers) != 200:
            await asyncio.sleep(1.0 / self._scale)
            await self._insist(model, headers)

    async def _chat(self, model: str, headers: dict[str, str]) -> int:
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 20}
        async with self._session.post(
            self._stack.gateway_url + _CHAT, json=body, headers=headers
        ) as answer:
            await answer.read()
            return answer.status

    async def batch(self, lines: int, seed: int) -> int:
        """The lines through the Batch API; how many were answered well."""
        form = aiohttp.FormData()
        form.add_field("purpose", "batch")
        form.add_field("file", _file(lines, seed), filename="lines.jsonl")
        file = await self._post("/v1/files", data=form)
        wanted = {
            "input_file_id": file["id"],
            "endpoint": _CHAT,
            "completion_window": "24h",
        }
        batch = await self._post("/v1/batches", json=wanted)
        while True:
            url = f"{self._stack.gateway_url}/v1/batches/{batch['id']}"
            async with self._session.get(url) as answer:
                now = await answer.json()
            done = int(now["request_counts"]["completed"])
            sys.stderr.write(f"\rheadstart: {done} of {lines} lines ")
            if now["status"] in ("completed", "failed", "expired", "cancelled"):
                sys.stderr.write("\n")
                return done
            await asyncio.sleep(_LOOK_REAL_S)

    async def plain(self, lines: int, seed: int, at_once: int) -> int:
        """The same lines by a client that knows nothing: in their order, so many at once."""
        chosen = iter(_models(lines, seed))
        done = 0

        async def send() -> None:
            nonlocal done
            for model in chosen:
                headers = {"X-Headstart-Class": "batch"}
                await self._insist(model, headers)
                done += 1
                if not done % 100:
                    sys.stderr.write(f"\rheadstart: {done} of {lines} lines ")

        await asyncio.gather(*(send() for _ in range(at_once)))
        sys.stderr.write("\n")
        return done

    async def arm(self, name: str, lines: int, took_s: float, mark: int) -> Arm:
        url = f"{self._stack.emulator_url}/emulator/events?after={mark}&limit=200000"
        async with self._session.get(url) as answer:
            events = (await answer.json())["events"]
        waits_s = sorted(self._waits_s)
        at: Callable[[float], float | None] = lambda share: (  # noqa: E731 - used twice below
            round(waits_s[int(share * len(waits_s))], 2) if waits_s else None
        )
        return Arm(
            name=name,
            lines=lines,
            took_s=took_s,
            loads=sum(event["kind"] == "load_started" for event in events),
            people=len(waits_s),
            people_p50_wait_s=at(0.5),
            people_p95_wait_s=at(0.95),
            failed=self._failed,
        )

    async def _post(self, path: str, **options: Any) -> Any:
        async with self._session.post(self._stack.gateway_url + path, **options) as answer:
            answer.raise_for_status()
            return await answer.json()


def _models(lines: int, seed: int) -> list[str]:
    chance = random.Random(f"lines-{seed}")
    return [chance.choice(MODELS) for _ in range(lines)]


def _file(lines: int, seed: int) -> bytes:
    return b"".join(
        json.dumps(
            {
                "custom_id": f"line-{number}",
                "method": "POST",
                "url": _CHAT,
                "body": {
                    "model": model,
                    "messages": [{"role": "user", "content": f"line {number}"}],
                    "max_tokens": 20,
                },
            }
        ).encode()
        + b"\n"
        for number, model in enumerate(_models(lines, seed))
    )
