"""``headstart bench autoscale``: what foresight is worth to a fleet whose replicas start slowly.

A day's wave of requests, with offices that open within minutes, is served twice in virtual time:
by the rule as it is, told what the predictor expects, and by the same rule told nothing. The
predictor has seen the days before, event by event, and never looks ahead.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from contracts.config import PredictorConfig
from contracts.events import PriorityClass, RequestCompleted, RequestReceived
from contracts.ids import ModelId, RequestId
from contracts.scaling import ScalingTarget
from contracts.world import WorldSnapshot
from controller.scaling.need import need_of
from predictor.engine import PredictorEngine
from simulator.fleet import Fleet, FleetReport

DAY_S = 86_400.0
MODEL = ModelId("chat")
SERVICE_S = 10.0
LOOK_S = 10.0
_WARM_UP_LOOK_S = 60.0

Arrival = tuple[float, float]


def register(bench: typer.Typer) -> None:
    """Add the benchmark."""
    bench.command("autoscale")(bench_autoscale)


def bench_autoscale(
    days: Annotated[int, typer.Option(min=1, max=28, help="Days that were seen before.")] = 4,
    per_s: Annotated[float, typer.Option(min=0.1, help="Requests per second at the height.")] = 1.0,
    start_s: Annotated[float, typer.Option(min=1.0, help="How long a replica starts.")] = 90.0,
    opening_minutes: Annotated[
        float, typer.Option(min=1.0, help="In how long the day's height is reached.")
    ] = 20.0,
    patience_s: Annotated[float, typer.Option(min=0.0, help="A longer wait is late.")] = 5.0,
    seed: Annotated[int, typer.Option(min=0, help="What requests are drawn from.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One object as the last line.")] = False,
) -> None:
    """Late requests and replica-hours of one day, with the forecast and without."""
    target = ScalingTarget(name="chat", capacity=2.0, start_s=start_s, smallest=1, largest=50)
    wave = Wave(highest=per_s, opening_s=60.0 * opening_minutes)
    arrivals = tuple(drawn(wave, until_s=(days + 1) * DAY_S, seed=seed))
    today = [(at_s - days * DAY_S, took_s) for at_s, took_s in arrivals if at_s >= days * DAY_S]
    sight = Sight(arrivals, target)
    sys.stderr.write(f"headstart: the predictor sees {days} days\n")
    sight.see(days * DAY_S)
    rows = []
    for name, expects in (
        ("with forecast", lambda at_s: sight.expected(days * DAY_S + at_s)),
        ("reactive", lambda _at_s: None),
    ):
        sys.stderr.write(f"headstart: {name}\n")
        fleet = Fleet(target, start_s=start_s, patience_s=patience_s, tick_s=LOOK_S)
        rows.append(row_of(name, fleet.play(today, expects, until_s=DAY_S)))
    result = {"rows": rows, "days": days, "start_s": start_s, "seed": seed}
    for row in rows:
        typer.echo("  ".join(f"{key} {value}" for key, value in row.items()))
    if as_json:
        typer.echo(json.dumps(result))


def row_of(name: str, report: FleetReport) -> dict[str, Any]:
    """As ``--json`` tells it."""
    return {
        "scaler": name,
        "requests": report.requests,
        "late": report.late,
        "longest_wait_s": round(report.longest_wait_s, 1),
        "replica_hours": round(report.replica_s / 3600.0, 2),
        "most_replicas": report.most,
        "orders": report.orders,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Requests per second over a day: nights, an opening, a noon, a closing.

    Attributes
    ----------
    highest : float
        Per second at the height of the day; a twentieth of it at night.
    opening_s : float
        From the night's rate to the day's; closing takes twice as long.
    """

    highest: float
    opening_s: float

    def __call__(self, at_s: float) -> float:
        """Requests per second at a time of any day."""
        of_day_s = at_s % DAY_S
        share = self._step(of_day_s, 8.5 * 3600.0, self.opening_s)
        share -= 0.4 * self._step(of_day_s, 12.0 * 3600.0, self.opening_s)
        share += 0.4 * self._step(of_day_s, 13.0 * 3600.0, self.opening_s)
        share -= self._step(of_day_s, 17.5 * 3600.0, 2.0 * self.opening_s)
        return self.highest * (0.05 + 0.95 * share)

    @staticmethod
    def _step(at_s: float, middle_s: float, width_s: float) -> float:
        """From 0 to 1 around ``middle_s``, most of it within ``width_s``."""
        return 1.0 / (1.0 + math.exp(-8.0 * (at_s - middle_s) / width_s))


def drawn(wave: Callable[[float], float], *, until_s: float, seed: int) -> Iterator[Arrival]:
    """Poisson arrivals by thinning (Lewis and Shedler 1979), each with its service time."""
    chance = random.Random(seed)
    highest = max(wave(60.0 * minute) for minute in range(24 * 60)) * 1.01
    at_s = 0.0
    while (at_s := at_s + chance.expovariate(highest)) < until_s:
        if chance.random() * highest < wave(at_s):
            yield at_s, chance.expovariate(1.0 / SERVICE_S)


class Sight:
    """The predictor beside the fleet: it hears of each request when it has come or ended."""

    def __init__(self, arrivals: tuple[Arrival, ...], target: ScalingTarget) -> None:
        heard: list[tuple[float, RequestReceived | RequestCompleted]] = []
        for number, (at_s, took_s) in enumerate(arrivals):
            heard.append((at_s, _received(number, at_s)))
            heard.append((at_s + took_s, _completed(number, at_s + took_s, took_s)))
        self._heard = iter(sorted(heard, key=lambda one: one[0]))
        self._next = next(self._heard, None)
        self._engine = PredictorEngine(PredictorConfig())
        self._target = target

    def see(self, until_s: float) -> None:
        """All that happened before, with a look a minute."""
        at_s = 0.0
        while at_s < until_s:
            at_s = min(until_s, at_s + _WARM_UP_LOOK_S)
            self._hear(at_s)
            while not self._engine.pass_time(at_s, steps=1_000):
                pass

    def expected(self, at_s: float) -> float | None:
        """What the autoscaler would be told at ``at_s``."""
        self._hear(at_s)
        forecasts = {one.model: one for one in self._engine.tick(at_s)}
        return need_of(self._target, WorldSnapshot(taken_at_s=at_s), forecasts).expected

    def _hear(self, until_s: float) -> None:
        while self._next is not None and self._next[0] <= until_s:
            self._engine.observe(self._next[1])
            self._next = next(self._heard, None)


def _received(number: int, at_s: float) -> RequestReceived:
    return RequestReceived(
        event_id=f"r{number}",
        at_s=at_s,
        source="bench",
        request_id=RequestId(str(number)),
        model=MODEL,
        operation="chat",
        priority=PriorityClass.REALTIME,
        client="",
        stream=False,
    )


def _completed(number: int, at_s: float, took_s: float) -> RequestCompleted:
    return RequestCompleted(
        event_id=f"c{number}",
        at_s=at_s,
        source="bench",
        request_id=RequestId(str(number)),
        model=MODEL,
        status=200,
        duration_s=took_s,
        service_s=took_s,
        input_tokens=None,
        output_tokens=None,
    )
