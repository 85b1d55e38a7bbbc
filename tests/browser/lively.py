"""Ten lively models in memory, for looking at the page and for testing it in a browser.

``python tests/browser/lively.py`` serves them on port 8090 until it is stopped.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
from dataclasses import dataclass, field, replace

from api.control.app import create_app
from api.control.ports import ControlPorts
from api.control.server import ControlServer, bind
from contracts.batches import Batch, BatchStatus, LineCounts
from contracts.config import ControlConfig
from contracts.events import (
    FeedbackGiven,
    FirstTokenSent,
    LoadCause,
    ModelLoaded,
    ModelUnloaded,
    NodeObserved,
    PriorityClass,
    RequestCompleted,
    RequestDispatched,
    RequestReceived,
    UnloadCause,
)
from contracts.forecasts import (
    HORIZONS_S,
    NEXT_USE_GRID_S,
    Forecast,
    ForecastStatus,
    HorizonForecast,
    ModelForecast,
    NextUse,
    Signal,
)
from contracts.ids import ModelId, NodeId, RequestId
from contracts.messages import LoadRequested, ToController, UnloadRequested
from contracts.plan import Decision, Outcome
from contracts.ports import Clock
from contracts.readings import GpuReading, ProbeReading
from contracts.reasons import Reason
from contracts.world import (
    Mode,
    ModelStatus,
    NodeStatus,
    PlanningTally,
    PrefetchTally,
    QueueStatus,
    Residency,
    Sla,
    WorldSnapshot,
)
from simulator.memory_ports import (
    MemoryControlStore,
    MemoryDecisionJournal,
    MemoryEventLog,
    MemoryForecastStore,
    MemoryJobQueue,
    MemoryMailbox,
    MemorySnapshotStore,
)

GB = 1000**3
NODE = NodeId("localai")
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
HISTORY_MINUTES = 150


@dataclass(frozen=True)
class Kind:
    name: str
    per_minute: float
    footprint_gb: float
    load_s: float
    cycle_minutes: float = 60.0


KINDS = (
    Kind("qwen3-8b-instruct", 6.0, 6.6, 7.2, 90),
    Kind("llama-3.3-70b-q4", 0.8, 41.0, 38.0, 120),
    Kind("mistral-small-24b", 2.2, 15.2, 14.0, 75),
    Kind("nomic-embed-text", 9.0, 0.6, 2.4, 40),
    Kind("bge-reranker-v2", 2.5, 1.2, 2.8, 55),
    Kind("whisper-large-v3", 1.4, 3.1, 4.6, 30),
    Kind("kokoro-tts", 1.1, 0.9, 2.6, 45),
    Kind("flux.1-schnell", 0.5, 16.8, 19.0, 50),
    Kind("minicpm-v-2_6", 0.4, 6.1, 8.1, 60),
    Kind("org/deepseek-coder-33b", 0.7, 19.4, 21.0, 80),
)

BATCH = Batch(
    batch_id="batch_1",
    endpoint="/v1/embeddings",
    input_file_id="file-1",
    completion_window="24h",
    status=BatchStatus.IN_PROGRESS,
    created_at_s=1.0,
    expires_at_s=2.0,
    counts=LineCounts(total=1000, completed=250, failed=10),
    lines_per_s=2.0,
    metadata={"name": "nightly"},
)
"""One that goes on."""


@dataclass
class Lively:
    """The ports and what goes on behind them."""

    clock: Clock
    kinds: tuple[Kind, ...] = KINDS
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    events: MemoryEventLog = field(default_factory=MemoryEventLog)
    forecasts: MemoryForecastStore = field(default_factory=MemoryForecastStore)
    decisions: MemoryDecisionJournal = field(default_factory=MemoryDecisionJournal)
    settings: MemoryControlStore = field(default_factory=MemoryControlStore)
    snapshots: MemorySnapshotStore = field(default_factory=MemorySnapshotStore)
    mailbox: MemoryMailbox[ToController] = field(default_factory=MemoryMailbox)
    jobs: MemoryJobQueue = field(default_factory=MemoryJobQueue)
    requests: int = 0
    cold: int = 0
    decided: int = 0
    swaps: int = 0
    polls: int = 0
    resident: set[ModelId] = field(default_factory=set)
    mail_place: str = "0"

    def __post_init__(self) -> None:
        now_s = self.clock.now_s()
        models = {
            ModelId(kind.name): self._status(index, kind) for index, kind in enumerate(self.kinds)
        }
        self.world = WorldSnapshot(
            taken_at_s=now_s,
            mode=Mode.ACTIVE,
            nodes={
                NODE: NodeStatus(
                    node=NODE,
                    alive=True,
                    seen_at_s=now_s,
                    budget_bytes=38 * GB,
                    memory_total_bytes=48 * GB,
                    memory_used_bytes=35 * GB,
                    used_by_others_bytes=2 * GB,
                )
            },
            models=models,
            queues=(
                QueueStatus(priority=PriorityClass.REALTIME, waiting=0, capacity=10),
                QueueStatus(priority=PriorityClass.BATCH, waiting=4, capacity=50, oldest_wait_s=11),
                QueueStatus(priority=PriorityClass.BACKGROUND, waiting=17, capacity=100),
            ),
            prefetches=PrefetchTally(started=61, used=44, wasted=12),
            demand_loads=37,
            planning=PlanningTally(runs=4210, total_s=5.1, recent_p95_s=0.0031, recent_max_s=0.011),
        )

    def _status(self, index: int, kind: Kind) -> ModelStatus:
        now_s = self.clock.now_s()
        hot = index in (0, 3, 4, 5, 6, 8) or kind.name == HOSTILE
        residency = Residency.HOT if hot else Residency.COLD
        return ModelStatus(
            model=ModelId(kind.name),
            node=NODE,
            residency=Residency.LOADING if index == 2 else residency,
            residency_since_s=now_s if index == 2 else now_s - 60 * index,
            last_used_at_s=now_s - 40 * index**2,
            arrivals=int(100 * kind.per_minute),
            footprint_bytes=int(kind.footprint_gb * GB),
            load_s=kind.load_s,
            load_cause=LoadCause.PREFETCH if index % 2 else LoadCause.DEMAND,
        )

    async def add(self, kind: Kind) -> None:
        """One more model, hot."""
        self.kinds = (*self.kinds, kind)
        status = replace(self._status(0, kind), residency=Residency.HOT)
        self.world = replace(self.world, models={**self.world.models, status.model: status})
        await self.snapshots.put_world(self.world)

    def remove(self, model: ModelId) -> None:
        """A model is gone from LocalAI."""
        self.kinds = tuple(kind for kind in self.kinds if kind.name != model)
        models = {name: one for name, one in self.world.models.items() if name != model}
        self.world = replace(self.world, models=models)

    def age(self, by_s: float) -> None:
        """The controller has not spoken for a while."""
        self.world = replace(self.world, taken_at_s=self.clock.now_s() - by_s)

    def ports(self) -> ControlPorts:
        return ControlPorts(
            events=self.events,
            forecasts=self.forecasts,
            decisions=self.decisions,
            settings=self.settings,
            snapshots=self.snapshots,
            controller=self.mailbox,
            jobs=self.jobs,
        )

    async def seed(self, *, minutes: int = HISTORY_MINUTES) -> tuple[ModelForecast, ...]:
        """Fill the ports; gives the forecasts that would have come before."""
        now_s = self.clock.now_s()
        start_s = now_s - minutes * 60
        past: list[ModelForecast] = []
        for minute in range(minutes):
            at_s = start_s + minute * 60
            for kind in self.kinds:
                for _ in range(self._poisson(_rate(kind, at_s))):
                    await self.request(kind, at_s + self.rng.random() * 60, cold=0.03)
                past.append(_forecast(kind, round(at_s / 60) * 60.0))
                await self._swap(kind, at_s)
            await self.observe(at_s)
        await self.forecasts.put(tuple(_forecast(kind, now_s) for kind in self.kinds))
        await self.settings.put_sla(Sla(model=ModelId(self.kinds[0].name), target_s=1.5))
        await self.settings.put_sla(
            Sla(
                model=ModelId(self.kinds[-1].name),
                target_s=30.0,
                percentile=90.0,
                priority=PriorityClass.BATCH,
                weight=0.5,
            )
        )
        if len(self.kinds) > 3:
            await self.settings.set_pin(ModelId(self.kinds[3].name), pinned=True)
        await self.settings.set_mode(Mode.ACTIVE)
        await self._obey()
        await self.snapshots.put_world(self.world)
        await self.keep_scores()
        for index in range(14):
            self.jobs.enqueue("batch", "inference", {}, f"b{index}")
        self.jobs.enqueue("maintenance", "retention", {}, "m1")
        self.jobs.move("b0", "started")
        for index in range(40):
            await self.decide(now_s - (40 - index) * 17)
        return tuple(past)

    async def _swap(self, kind: Kind, at_s: float) -> None:
        """Now and then a model that is not there comes, and one that is there goes."""
        model = ModelId(kind.name)
        self.swaps += 1
        if model in self.resident:
            if self.rng.random() < 0.03 and self.world.models[model].residency is Residency.COLD:
                self.resident.discard(model)
                await self.events.append(
                    (
                        ModelUnloaded(
                            event_id=f"u{self.swaps}",
                            at_s=at_s,
                            source="controller",
                            model=model,
                            node=NODE,
                            cause=UnloadCause.EVICTED,
                        ),
                    )
                )
        elif self.rng.random() < (
            0.05 if self.world.models[model].residency is Residency.COLD else 0.5
        ):
            self.resident.add(model)
            await self.events.append(
                (
                    ModelLoaded(
                        event_id=f"l{self.swaps}",
                        at_s=at_s,
                        source="controller",
                        model=model,
                        node=NODE,
                        cause=self.rng.choice((LoadCause.PREFETCH, LoadCause.DEMAND)),
                        load_s=kind.load_s * self.rng.uniform(0.8, 1.4),
                        footprint_bytes=int(kind.footprint_gb * GB),
                    ),
                )
            )

    def reading(self, at_s: float) -> ProbeReading:
        """What the machine's probes tell."""
        swing = 0.5 + 0.5 * math.sin(at_s / 900.0)
        utilization = min(1.0, 0.25 + 0.6 * swing + 0.1 * self.rng.random())
        return ProbeReading(
            at_s=at_s,
            gpu_utilization_ratio=utilization,
            gpu_memory_used_bytes=int((30 + 14 * swing) * GB),
            gpu_memory_total_bytes=48 * GB,
            gpu_temperature_celsius=55 + 20 * swing,
            cpu_utilization_ratio=0.2 + 0.3 * swing,
            load_average_15min=1.2 + 3.2 * swing,
            host_memory_used_bytes=21 * GB,
            host_memory_total_bytes=64 * GB,
            host_memory_available_bytes=43 * GB,
            cpus=16.0,
            load_average_1min=1.0 + 4.0 * swing,
            load_average_5min=1.1 + 3.6 * swing,
            context_switches_per_s=12_000.0,
            cpu_pressure_some_ratio=0.04 * swing,
            cpu_pressure_full_ratio=0.0,
            memory_pressure_some_ratio=0.0,
            memory_pressure_full_ratio=0.0,
            io_pressure_some_ratio=0.02,
            io_pressure_full_ratio=0.01,
            gpus=(
                GpuReading(
                    uuid="GPU-0",
                    name="a card",
                    utilization_ratio=utilization,
                    temperature_celsius=55 + 20 * swing,
                    power_watts=90 + 240 * utilization,
                    memory_total_bytes=48 * GB,
                    memory_used_bytes=int((30 + 14 * swing) * GB),
                    memory_free_bytes=int((18 - 14 * swing) * GB),
                    memory_reserved_bytes=GB // 2,
                    used_by_others_bytes=2 * GB,
                ),
            ),
        )

    async def observe(self, at_s: float) -> None:
        """One poll of the node."""
        self.polls += 1
        reading = self.reading(at_s)
        await self.events.append(
            (
                NodeObserved(
                    event_id=f"n{self.polls}",
                    at_s=at_s,
                    source="controller",
                    node=NODE,
                    resident=(),
                    busy=(),
                    memory_total_bytes=48 * GB,
                    memory_used_bytes=reading.gpu_memory_used_bytes,
                    model_limit=None,
                    reading=reading,
                ),
            )
        )

    async def keep_scores(self) -> None:
        """Ours beside LocalAI's own, as the controller publishes them."""
        theirs = {"arrivals": self.requests, "cold_starts": round(0.094 * self.requests)}
        ours = {"arrivals": self.requests, "cold_starts": self.cold}
        await self.snapshots.put_baseline("localai-lru", theirs)
        await self.snapshots.put_baseline("headstart", ours)

    async def request(self, kind: Kind, at_s: float, *, cold: float) -> None:
        """One whole request."""
        self.requests += 1
        request, model = RequestId(f"r{self.requests}"), ModelId(kind.name)
        is_cold = self.rng.random() < cold
        self.cold += is_cold
        wait_s = 0.01 + (kind.load_s if is_cold else 0.0)
        ttft_s = self.rng.expovariate(1 / 0.6) + wait_s
        priority = self.rng.choice((PriorityClass.REALTIME,) * 6 + tuple(PriorityClass))

        def told(index: int) -> dict[str, object]:
            return {"event_id": f"{request}-{index}", "at_s": at_s, "source": "gw"}

        await self.events.append(
            (
                RequestReceived(
                    **told(0),  # type: ignore[arg-type]  # the three fields that all events have
                    request_id=request,
                    model=model,
                    operation="chat",
                    priority=priority,
                    client="c",
                    stream=True,
                ),
                RequestDispatched(
                    **told(1),  # type: ignore[arg-type]  # as above
                    request_id=request,
                    model=model,
                    node=NODE,
                    queue_wait_s=wait_s,
                    cold=is_cold,
                ),
                FirstTokenSent(
                    **told(2),  # type: ignore[arg-type]  # as above
                    request_id=request,
                    model=model,
                    ttft_s=ttft_s,
                ),
                RequestCompleted(
                    **told(3),  # type: ignore[arg-type]  # as above
                    request_id=request,
                    model=model,
                    status=200,
                    duration_s=ttft_s + 2,
                    service_s=2.0,
                    input_tokens=200,
                    output_tokens=100,
                ),
            )
        )
        if self.requests % 15 == 0:
            await self.events.append(
                (
                    FeedbackGiven(
                        **told(4),  # type: ignore[arg-type]  # as above
                        request_id=request,
                        model=model,
                        score=float(self.rng.random() < 0.85),
                    ),
                )
            )

    async def decide(self, at_s: float) -> None:
        """One decision of a plausible kind."""
        self.decided += 1
        kind = self.rng.choice(self.kinds)
        outcome, reason, evidence = self.rng.choice(_DECISIONS)
        await self.decisions.append(
            (
                Decision(
                    policy="headstart",
                    subject=NODE if reason is Reason.GAIN_TOO_SMALL else kind.name,
                    outcome=outcome,
                    reason=reason,
                    evidence=evidence,
                    decision_id=f"d{self.decided}-0",
                    made_at_s=at_s,
                ),
            )
        )

    async def step(self) -> None:
        """What happens in one second."""
        now_s = self.clock.now_s()
        await self._obey()
        models = dict(self.world.models)
        for kind in self.kinds:
            status = models[ModelId(kind.name)]
            arrived = self._poisson(_rate(kind, now_s) / 60)
            for _ in range(arrived):
                await self.request(kind, now_s, cold=float(status.residency is not Residency.HOT))
            flight = max(0, min(4, status.in_flight + arrived - self.rng.randint(0, 1)))
            if status.residency is Residency.LOADING:
                if now_s - status.residency_since_s > (status.load_s or 5):
                    status = replace(status, residency=Residency.HOT, residency_since_s=now_s)
            elif status.residency is Residency.HOT:
                status = replace(status, in_flight=flight)
            if arrived:
                status = replace(status, last_used_at_s=now_s, arrivals=status.arrivals + arrived)
            models[status.model] = status
        await self.observe(now_s)
        reading = self.reading(now_s)
        nodes = {NODE: replace(self.world.nodes[NODE], seen_at_s=now_s, reading=reading)}
        self.world = replace(
            self.world,
            taken_at_s=now_s,
            generation=self.world.generation + 1,
            models=models,
            nodes=nodes,
            mode=await self.settings.mode() or Mode.OBSERVE,
        )
        await self.snapshots.put_world(self.world)
        await self.keep_scores()
        if self.rng.random() < 0.25:
            await self.decide(now_s)
        if self.world.generation % 10 == 0:
            await self.forecasts.put(tuple(_forecast(kind, now_s) for kind in self.kinds))

    async def run(self) -> None:
        while True:
            await self.step()
            await self.clock.sleep(self.clock.scale)

    async def _obey(self) -> None:
        for model in await self.settings.pins() ^ {m.model for m in self._pinned()}:
            self.set(model, pinned=not self.world.models[model].pinned)
        self.mail_place, messages = await self.mailbox.receive(self.mail_place, block_s=0)
        for message in messages:
            now_s = self.clock.now_s()
            if isinstance(message, LoadRequested):
                self.set(message.model, residency=Residency.LOADING, residency_since_s=now_s)
            elif isinstance(message, UnloadRequested):
                self.set(message.model, residency=Residency.COLD, residency_since_s=now_s)

    def _pinned(self) -> list[ModelStatus]:
        return [status for status in self.world.models.values() if status.pinned]

    def set(self, model: ModelId, **changes: object) -> None:
        """Change one model of the world."""
        status = replace(self.world.models[model], **changes)  # type: ignore[arg-type]  # a test
        self.world = replace(self.world, models={**self.world.models, model: status})

    def _poisson(self, mean: float) -> int:
        limit, product, count = math.exp(-mean), self.rng.random(), 0
        while product > limit:
            product *= self.rng.random()
            count += 1
        return count


_DECISIONS: tuple[tuple[Outcome, Reason, tuple[tuple[str, float | str], ...]], ...] = (
    (Outcome.CHANGE, Reason.DEMAND, (("waiting", 2), ("waited_s", 0.004), ("evicts", "kokoro"))),
    (
        Outcome.CHANGE,
        Reason.FORECAST,
        (("probability", 0.71), ("load_s", 7.2), ("gain", 0.51), ("must_beat", 0.23)),
    ),
    (
        Outcome.CHANGE,
        Reason.LEAST_EXPECTED_LOSS,
        (
            ("probability", 0.02),
            ("cost", 7.2),
            ("loss", 0.0031),
            ("freed_mb", 16022),
            ("room_for", "mistral"),
        ),
    ),
    (
        Outcome.HOLD,
        Reason.GAIN_TOO_SMALL,
        (("probability", 0.12), ("gain", 0.08), ("must_beat", 0.23)),
    ),
    (
        Outcome.HOLD,
        Reason.NO_ROOM,
        (("needs_mb", 39100), ("occupied_mb", 2000), ("usable_mb", 36239)),
    ),
)


def _rate(kind: Kind, at_s: float) -> float:
    phase = 2 * math.pi * (at_s / 60) / kind.cycle_minutes
    return kind.per_minute * (1.0 + 0.75 * math.sin(phase))


def _forecast(kind: Kind, made_at_s: float) -> ModelForecast:
    model = ModelId(kind.name)
    horizons = []
    for horizon_s in HORIZONS_S:
        steps = int(horizon_s // 60)
        mean = sum(_rate(kind, made_at_s + 60 * step + 30) for step in range(steps))
        spread = math.sqrt(mean + 0.05) * (1.15 + 0.0002 * horizon_s)
        horizons.append(
            HorizonForecast(
                horizon_s=horizon_s,
                mean=mean,
                quantiles=(
                    max(0.0, mean - 1.28 * spread),
                    mean,
                    mean + 1.28 * spread,
                    mean + 2.33 * spread,
                ),
                method="river_linear",
                status=ForecastStatus.READY
                if kind.per_minute > 0.45
                else ForecastStatus.WARMING_UP,
                loss=0.21 * spread,
                floor_loss=0.33 * spread,
                coverage_ratio=0.91,
            )
        )
    rate = _rate(kind, made_at_s) / 60
    expires_at_s = made_at_s + 60
    return ModelForecast(
        model=model,
        next_use=NextUse(
            model=model,
            made_at_s=made_at_s,
            expires_at_s=expires_at_s,
            last_arrival_at_s=made_at_s - 5,
            cumulative_hazard=tuple(rate * delay_s for delay_s in NEXT_USE_GRID_S),
            method="gaps",
            status=ForecastStatus.READY,
            brier=0.11,
            floor_brier=0.19,
        ),
        signals=(
            Forecast(
                model=model,
                signal=Signal.ARRIVALS,
                made_at_s=made_at_s,
                expires_at_s=expires_at_s,
                horizons=tuple(horizons),
            ),
        ),
    )


async def serve(port: int) -> None:
    """Serve the page with ten lively models."""
    from adapters.clock import ScaledClock

    clock = ScaledClock()
    lively = Lively(clock)
    past = await lively.seed()
    app = create_app(ControlConfig(host="127.0.0.1", port=port), lively.ports(), clock)
    app.state.room.board.take_forecasts(past)
    server = ControlServer(app, on_stop=app.state.room.feed.close)
    live = asyncio.create_task(lively.run())
    await server.serve(sockets=[bind("127.0.0.1", port)])
    live.cancel()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 8090))
