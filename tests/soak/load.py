"""What goes through the stack: a wave of callers, odd ones, jobs, batches, a dashboard, probes."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import as_file, files
from random import Random
from zlib import crc32

import aiohttp

from adapters.clock import ScaledClock
from cli.stack import Stack
from cli.traffic import SERVICE_HEADER, Planned, send_all, streamed_request_of_kind
from contracts.events import PriorityClass
from contracts.ids import ModelId
from emulator.models import EmulatedModel, load_yaml, read_models
from simulator.recipe import Caller, Recipe, Step, parse_recipe
from simulator.replay import Sent

HOUR_S = 3600.0
CAPACITY_MB = 24_000
SETTLE_S = 2 * HOUR_S
"""After the course every caller has to have an answer within this."""

TROUGH = 0.2
"""What is left of people's traffic in the quietest hour."""

PROBED = ModelId("nomic-embed-text-v1.5")
"""Small, asked for all the time and so resident: what its requests wait is added latency."""

_BUSIER = 3.0
_FOLLOW_S = HOUR_S
_POLL_REAL_S = 2.0
_PAGES = (
    "/v1/models", "/v1/summary", "/v1/kpis?window=1h", "/v1/heat", "/v1/forecasts", "/v1/nodes",
    "/v1/decisions?limit=50", "/v1/requests?limit=50", "/v1/queues", "/v1/policies", "/metrics",
    "/v1/explain/llama-3.1-8b-instruct-q4",
)  # fmt: skip
_CHAT = {"messages": [{"role": "user", "content": "Hello"}], "stream": True}
_MORE_MODELS = (
    EmulatedModel(name="mistral-7b-q4", kind="chat", footprint_mb=5200, load_s=8.0),
    EmulatedModel(name="bge-reranker", kind="embedding", footprint_mb=1200, load_s=3.0),
)


@dataclass(slots=True, kw_only=True)
class Told:
    """What became of all of it.

    Attributes
    ----------
    statuses : Counter
        Answers to callers by status; 0 where the connection broke.
    probes : list
        ``(hour, added_s)``: a request to a resident model through the gateway, less the same
        one asked of LocalAI itself just before; real seconds.
    direct : list
        ``(hour, s)`` of the latter.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    probes: list[tuple[float, float]] = field(default_factory=list)
    direct: list[tuple[float, float]] = field(default_factory=list)
    slow_probes: int = 0
    odd: int = 0
    jobs: int = 0
    lines: int = 0
    batches: int = 0
    polls: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    events: int = 0
    follows: int = 0
    is_settled: bool = True

    def ended(self, sent: Sent) -> None:
        """Take one caller's answer in."""
        self.statuses[sent.status or 0] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """When it begins (epoch seconds of the stack's clock), and how long it and a wave take."""

    seed: int
    begin_s: float
    hours: float
    wave_hours: float

    def hour(self, now_s: float) -> float:
        """Hours since the beginning."""
        return (now_s - self.begin_s) / HOUR_S

    def wave(self, now_s: float) -> float:
        """The share of the busiest hour's people, between ``TROUGH`` and 1."""
        phase = 2.0 * math.pi * self.hour(now_s) / self.wave_hours
        return TROUGH + (1.0 - TROUGH) * (1.0 - math.cos(phase)) / 2.0


def models() -> dict[ModelId, EmulatedModel]:
    """Twelve models, of which about half fit."""
    with as_file(files("data").joinpath("demo", "models.yaml")) as path:
        known = (*read_models(path), *_MORE_MODELS)
    return {ModelId(model.name): model for model in known}


def recipe(seed: int) -> Recipe:
    """The demo's office, busier, and with two more models."""
    text = files("data").joinpath("demo", "traffic.yaml").read_text(encoding="utf-8")
    demo = parse_recipe(load_yaml(text))
    more = (
        Caller(
            name="people who search",
            steps=(Step(model=ModelId("bge-reranker"), service_s=0.5, after_s=15.0),),
            per_hour=6.0,
            rounds=3,
        ),
        Caller(
            name="people who translate",
            steps=(Step(model=ModelId("mistral-7b-q4"), service_s=4.0, after_s=40.0),),
            per_hour=3.0,
            rounds=3,
            priority=PriorityClass.BATCH,
        ),
    )
    busier = (replace(c, per_hour=c.per_hour * _BUSIER) for c in (*demo.callers, *more))
    return Recipe(seed=seed, callers=tuple(busier))


def requests(course: Course, from_s: float, until_s: float) -> Iterator[Planned]:
    """The wave's requests in order. Jobs keep to the clock; people come and go with the wave."""
    kinds = {name: model.kind for name, model in models().items()}
    office = recipe(course.seed)
    clockwork = {caller.name for caller in office.callers if caller.every_s is not None}
    for number, request in enumerate(office.requests(from_s, until_s)):
        if request.client not in clockwork:
            # People stay for minutes: those of a quarter of an hour come or do not.
            drawn = crc32(f"{course.seed}:{request.client}:{request.at_s // 900:.0f}".encode())
            if drawn % 1000 >= 1000.0 * course.wave(request.at_s):
                continue
        yield Planned(
            request_id=f"soak-{number}",
            model=request.model,
            due_s=request.at_s,
            service_s=request.service_s,
            headers={"X-Headstart-Class": request.priority},
            **streamed_request_of_kind(kinds[request.model]),
        )


class Load:
    """Everything that asks the stack for something, until it is cancelled.

    Parameters
    ----------
    quiet : asyncio.Lock
        Held while somebody looks at the processes: probes wait, so that they do not measure that.
    probes_per_s : float
        In real seconds.
    """

    def __init__(
        self,
        stack: Stack,
        session: aiohttp.ClientSession,
        clock: ScaledClock,
        course: Course,
        quiet: asyncio.Lock,
        told: Told,
        *,
        probes_per_s: float,
    ) -> None:
        self._stack = stack
        self._session = session
        self._clock = clock
        self._course = course
        self._quiet = quiet
        self._told = told
        self._probe_every_s = 1.0 / probes_per_s
        self._random = Random(course.seed)

    async def run(self) -> None:
        """All at once; returns when the course is over and the callers have their answers."""
        end_s = self._course.begin_s + self._course.hours * HOUR_S
        others: list[asyncio.Task[None]] = [
            asyncio.create_task(each)
            for each in (
                self._probe(),
                self._again(self._job, every_s=1200.0),
                self._again(self._batch, every_s=2 * HOUR_S, first_s=900.0),
                self._again(self._odd, every_s=60.0),
                self._follow(),
                self._poll(),
            )
        ]
        callers = asyncio.create_task(
            send_all(
                requests(self._course, self._clock.now_s(), end_s),
                self._stack.gateway_url,
                self._clock,
                on_ended=self._told.ended,
            )
        )
        try:
            limit_s = (end_s + SETTLE_S - self._clock.now_s()) / self._clock.scale
            done, _ = await asyncio.wait(
                {*others, callers}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            self._told.is_settled = bool(done)
            for task in (*others, callers):
                if task.done():
                    task.result()
        finally:
            for task in (*others, callers):
                task.cancel()
            await asyncio.gather(*others, callers, return_exceptions=True)

    async def _again(
        self, do: Callable[[], Awaitable[None]], *, every_s: float, first_s: float | None = None
    ) -> None:
        await self._clock.sleep(every_s if first_s is None else first_s)
        while True:
            try:
                await do()
            except (aiohttp.ClientError, TimeoutError) as error:
                self._told.failures[f"{do.__name__[1:]}: {_said(error)}"] += 1
            await self._clock.sleep(every_s)

    async def _probe(self) -> None:
        """Pairs of small requests to a resident model, past the gateway and through it."""
        while True:
            async with self._quiet:
                alone_s, _ = await self._small(self._stack.emulator_url)
                through_s, at_once = await self._small(self._stack.gateway_url)
            hour = self._course.hour(self._clock.now_s())
            if at_once:
                self._told.probes.append((hour, through_s - alone_s))
                self._told.direct.append((hour, alone_s))
            else:
                self._told.slow_probes += 1
            await asyncio.sleep(self._probe_every_s)

    async def _small(self, base: str) -> tuple[float, bool]:
        """How long a request that needs no work takes, and whether the gateway held it nowhere."""
        began_s = time.perf_counter()
        async with self._session.post(
            base + "/v1/embeddings",
            json={"model": PROBED, "input": "Hello"},
            headers={SERVICE_HEADER: "0"},
        ) as got:
            await got.read()
            took_s = time.perf_counter() - began_s
            queued = got.headers.get("X-Headstart-Queue-Ms")
            is_hot = got.headers.get("X-Headstart-Cold") == "false"
            return took_s, got.status == 200 and is_hot and queued == "0"

    async def _job(self) -> None:
        await self._control(
            "POST",
            "/v1/background/v1/chat/completions",
            json={"model": "gemma-3-4b-it-q4", **_CHAT, "stream": False, "max_tokens": 5},
            headers={"X-Headstart-Class": "background"},
        )
        self._told.jobs += 1

    async def _batch(self) -> None:
        """A file of twenty lines, and a batch over it."""
        url = "/v1/chat/completions"
        body = {"model": "phi-4-mini-q4", "max_tokens": 3, **_CHAT, "stream": False}
        lines = [
            json.dumps({"custom_id": f"line-{n}", "method": "POST", "url": url, "body": body})
            for n in range(20)
        ]
        form = aiohttp.FormData({"purpose": "batch"})
        form.add_field("file", "\n".join(lines).encode(), filename="in.jsonl")
        file = json.loads(await self._control("POST", "/v1/files", data=form))
        await self._control(
            "POST",
            "/v1/batches",
            json={"input_file_id": file["id"], "endpoint": url, "completion_window": "24h"},
        )
        self._told.batches += 1
        self._told.lines += len(lines)

    async def _odd(self) -> None:
        """Callers as they also come: one leaves early, one has a name wrong, one sends no JSON."""
        self._told.odd += 1
        url = self._stack.gateway_url + "/v1/chat/completions"
        wrong = f"no-such-model-{self._random.randrange(10**9)}"
        timeout = aiohttp.ClientTimeout(total=60.0)
        async with self._session.post(url, json={"model": wrong, **_CHAT}, timeout=timeout) as got:
            await got.read()
        async with self._session.post(url, data=b"{no json", timeout=timeout) as got:
            await got.read()
        model = self._random.choice(("llama-3.1-8b-instruct-q4", "mistral-7b-q4"))
        leaving = aiohttp.ClientTimeout(total=self._random.uniform(0.01, 0.3))
        try:
            async with self._session.post(
                url,
                json={"model": model, **_CHAT},
                headers={SERVICE_HEADER: "30"},
                timeout=leaving,
            ) as got:
                await got.read()
        except TimeoutError:
            return

    async def _follow(self) -> None:
        """A dashboard page that follows the events, and is opened anew every hour."""
        while True:
            self._told.follows += 1
            try:
                async with (
                    self._clock.timeout(_FOLLOW_S),
                    self._session.get(
                        self._stack.control_url + "/v1/events",
                        timeout=aiohttp.ClientTimeout(total=None),
                    ) as got,
                ):
                    async for line in got.content:
                        self._told.events += line.startswith(b"event:")
            except TimeoutError:
                continue
            except aiohttp.ClientError as error:
                self._told.failures[f"events: {_said(error)}"] += 1
            await asyncio.sleep(_POLL_REAL_S)

    async def _poll(self) -> None:
        """The pages that a dashboard asks for, in turn."""
        while True:
            for page in _PAGES:
                try:
                    await self._control("GET", page)
                except (aiohttp.ClientError, TimeoutError) as error:
                    self._told.failures[_said(error)] += 1
                self._told.polls += 1
                await asyncio.sleep(_POLL_REAL_S / len(_PAGES) * 2)

    async def _control(self, method: str, path: str, **options: object) -> bytes:
        headers: Mapping[str, str] = options.pop("headers", {})  # type: ignore[assignment] # ours
        async with self._session.request(
            method,
            self._stack.control_url + path,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=60.0),
            **options,  # type: ignore[arg-type] # as aiohttp takes them
        ) as got:
            content = await got.read()
            if got.status >= 400:
                raise aiohttp.ClientResponseError(
                    got.request_info, (), status=got.status, message=f"{path}: {content[:200]!r}"
                )
            return content


def _said(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientResponseError):
        return f"{error.status} {error.message}"
    return type(error).__name__
