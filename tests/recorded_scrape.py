"""What Prometheus would scrape of a deployment in which everything has happened at least once."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from prometheus_client.metrics_core import Metric

from adapters.clock import ScaledClock
from api.control.app import create_app
from api.control.metrics import Reading, _ReadingCollector, render
from api.control.room import ControlRoom
from api.gateway.backend_metrics import BackendMetrics
from api.gateway.breaker import Phase
from api.gateway.metrics import GatewayMetrics
from contracts.config import ControlConfig
from contracts.events import ModelUnloaded, PriorityClass, UnloadCause
from contracts.ids import ModelId, NodeId
from contracts.instances import Instance
from contracts.memory import PlaceId, PlaceKind, PlaceStatus
from contracts.predictors import PredictorBeat, Standing
from contracts.reasons import Reason
from contracts.scaling import Scaling
from simulator.memory_predictors import MemoryPredictorRoster
from simulator.memory_scaling import MemoryScalingStore
from tests.browser.lively import GB, KINDS, Lively

HIGH, MIDDLE, LOW = PriorityClass
MODEL, NODE = ModelId(KINDS[0].name), NodeId("localai")


@dataclass(frozen=True)
class Family:
    """One metric as a scrape documents it."""

    name: str
    kind: str
    text: str
    labels: tuple[str, ...]


class _Readings:
    def in_flight(self) -> dict[ModelId, int]:
        return {MODEL: 2}

    waiting = in_flight

    def queued(self) -> dict[PriorityClass, int]:
        return dict.fromkeys(PriorityClass, 1)

    def events(self) -> dict[str, int]:
        return {"written": 100, "dropped": 1}

    def table_age_s(self) -> float | None:
        return 1.0

    def __getattr__(self, name: str) -> Any:
        # Readings that were added since: none of them has anything to tell here.
        return dict


@functools.cache
def gateway_scrape(*, openmetrics: bool = False) -> str:
    """A gateway that has seen every kind of thing."""
    return _gateway_metrics().render(openmetrics=openmetrics).decode()


def _gateway_metrics() -> GatewayMetrics:
    metrics = GatewayMetrics(lambda _: True)
    metrics.read_from(_Readings())
    for priority in PriorityClass:
        for wait_s, cold in ((0.01, False), (4.0, True)):
            metrics.dispatched(MODEL, priority, wait_s=wait_s, cold=cold)
            metrics.first_content(MODEL, priority, wait_s + 0.5)
        for outcome, status in (("completed", 200), ("failed", 502), ("cancelled", None)):
            metrics.ended(
                MODEL, operation="chat", priority=priority, outcome=outcome, status=status,
                duration_s=2.0,
            )  # fmt: skip
        metrics.preempted(priority)
        metrics.put_back(priority)
    metrics.tokens(MODEL, 100, 50)
    for refusal in ("queue_full", "queue_timeout", "no_backend"):
        metrics.refused(refusal)
    for first_s in (*[0.2] * 30, 9.0):
        metrics.warm_first_content(MODEL, first_s)
    metrics.retried()
    metrics.health_check("forwarded")
    metrics.passed(200)
    metrics.lone_load("loaded")
    breakers = SimpleNamespace(
        opened={NODE: 1}, phases=lambda _now_s: {(NODE, None): Phase.OPEN}, forgotten=0
    )
    dispatcher: Any = SimpleNamespace(
        nodes={NODE: None},
        ledger=SimpleNamespace(by_node={NODE: 1}),
        breakers=breakers,
        retries={"refused": 1},
        clock=ScaledClock(),
        on_first_content=None,
        relay=SimpleNamespace(
            fleet=SimpleNamespace(nodes={NODE: None}, joined=1, left=0, left_out=0, on_left=[])
        ),
    )
    lists: Any = SimpleNamespace(left_out={NODE: 1})
    BackendMetrics(metrics.registry, dispatcher, lists)
    dispatcher.on_first_content(NODE, 0.4)
    return metrics


@functools.cache
def control_scrape(*, openmetrics: bool = False) -> str:
    """A control API over an hour of ten lively models."""
    return render(asyncio.run(_control_reading()), openmetrics=openmetrics).decode()


async def _control_reading() -> Reading:
    lively = Lively(ScaledClock())
    past = await lively.seed(minutes=60)
    await lively.step()
    now_s = lively.clock.now_s()
    node = replace(
        lively.world.nodes[NODE],
        places=(PlaceStatus(place=PlaceId("GPU-0"), kind=PlaceKind.GPU, total_bytes=48 * GB),),
        load_latency_s=9.0,
        levels={Reason.LOADS_SLOW: 1.2},
    )
    instance = Instance(node=NODE, address="10.0.0.5", joined_at_s=now_s - 60.0)
    lively.world = replace(lively.world, nodes={NODE: node}, instances={NODE: instance})
    await lively.snapshots.put_world(lively.world)
    unload = ModelUnloaded(
        event_id="gone", at_s=now_s, source="c", model=MODEL, node=NODE, cause=UnloadCause.EVICTED
    )
    await lively.events.append((unload,))
    scaling = MemoryScalingStore()
    await scaling.put_scaling(
        Scaling(
            target="chat",
            at_s=now_s,
            replicas=4,
            reason=Reason.AT_LARGEST,
            needed=5,
            most=4,
            current=3,
        )
    )
    predictors = MemoryPredictorRoster()
    await predictors.beat(
        PredictorBeat(
            name="predictor-1", host="h", standing=Standing.OWNER, at_s=now_s, since_s=now_s
        )
    )
    ports = replace(
        lively.ports(), workers=lambda _queue: 1, scaling=scaling, predictors=predictors
    )
    room: ControlRoom = create_app(ControlConfig(), ports, lively.clock).state.room
    board = room.board
    board.take_forecasts(past)
    board.replace_forecasts(await lively.forecasts.get_all())
    board.kpis.counters.start_at(0.0)
    await room.followers.read_world()
    for entry in await lively.events.read_after("0", count=1_000_000):
        board.tally.observe(entry.value)
        board.kpis.observe(entry.value)
        board.log_place = entry.entry_id
    assert board.world is not None
    board.kpis.saw(board.world, lively.clock.now_s())
    board.jobs, board.workers = lively.jobs.counts(), dict.fromkeys(lively.jobs.counts(), 1)
    for decision in await lively.decisions.newest(limit=100):
        board.count_decision(decision.value)
    room.metrics.count("GET", "/v1/models", 200)
    return room.metrics.read()


def families(metrics: Iterable[Metric]) -> dict[str, Family]:
    """What is documented, by the name that a scrape shows."""
    found = {}
    for metric in metrics:
        name = metric.name + ("_total" if metric.type == "counter" else "")
        labels = tuple(sorted(getattr(metric, "_labelnames", ())))
        found[name] = Family(name=name, kind=metric.type, text=metric.documentation, labels=labels)
    return found


def gateway_families() -> dict[str, Family]:
    """Those of a gateway."""
    return families(_gateway_metrics().registry.collect())


def control_families() -> dict[str, Family]:
    """Those of the control API."""
    return families(_ReadingCollector(asyncio.run(_control_reading())).collect())


@functools.cache
def all_families() -> dict[str, Family]:
    """All of both."""
    return {**gateway_families(), **control_families()}
