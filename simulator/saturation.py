"""What is gained over LocalAI's own LRU where the hardware is fully used: workload and figures.

The workload: people and jobs ask a few dozen models of one GPU that holds about a fifth of
them, at so high a rate that LocalAI's LRU just cannot keep up (the knee). A request has one
of three classes. Figures are taken while requests keep coming, so that a backlog that is
worked off afterwards counts as not done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random

from contracts.ids import ModelId
from simulator.cluster_state import Outcome
from simulator.drawn_traffic import drawn_models
from simulator.report import percentile
from simulator.simulation import Simulation
from simulator.workloads import Arrival, Workload, drawn_rank

REALTIME = 0

TIME_LIMIT_S = (30.0, 120.0, 600.0)
"""How long a request of each class waits before it is given up: the gateway's defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaturationRow:
    """One policy under full load, over the time in which requests came.

    Attributes
    ----------
    throughput_per_s : float
        Requests that were served and ended in that time, for each second of it; one that
        waited longer than its class may is not counted, since it is refused in a deployment.
    realtime_p95_wait_s : float
        Of requests of the highest class, those still waiting at the end with what they had
        waited by then.
    gpu_in_use, gpu_in_use_in_time : float
        Share of the time in which at least one request was served; and one that had not
        waited longer than its class may, since others are refused in a deployment.
    """

    policy: str
    n: int
    throughput_per_s: float
    realtime_p95_wait_s: float
    gpu_in_use: float
    gpu_in_use_in_time: float
    mean_wait_s: float
    loads: int

    def as_dict(self) -> dict[str, float | int | str]:
        """The row as JSON takes it."""
        return asdict(self)


def knee_traffic(*, seed: int, models: int = 30, span_s: float = 7200.0, per_s: float) -> Workload:
    """Sessions of people (a few requests to one model, minutes apart) and jobs on the clock.

    Parameters
    ----------
    per_s : float
        Requests per second of all together.
    """
    random = Random(seed)
    specs = drawn_models(models)
    names = sorted(specs)
    shares = [1.0 / (rank + 1) ** 0.6 for rank in range(models)]
    arrivals: list[Arrival] = []
    per_session = 5.0
    at_s = 0.0
    while (at_s := at_s + random.expovariate(per_s / per_session / 2.0)) < span_s:
        (name,) = random.choices(names, shares)
        turn_s = at_s
        for _ in range(random.randint(1, 2 * int(per_session) - 1)):
            arrivals.append(_request(random, turn_s, name, len(arrivals)))
            turn_s += random.gammavariate(4.0, 8.0)
    # The other half of the traffic: each third model is a job's, on the clock.
    jobs = names[1::3]
    period_s = len(jobs) / (per_s / 2.0) * 4.0
    for number, name in enumerate(jobs):
        due_s = period_s * number / len(jobs)
        while due_s < span_s:
            arrivals += [
                _request(random, due_s + 2.0 * item, name, len(arrivals) + item)
                for item in range(4)
            ]
            due_s += period_s
    kept = tuple(sorted(arrival for arrival in arrivals if arrival.at_s < span_s))
    return Workload(name=f"knee-{per_s:g}", models=specs, arrivals=kept)


def saturation_row(policy: str, simulation: Simulation) -> SaturationRow:
    """Sum up a simulation that has run."""
    arrivals = simulation.workload.arrivals
    begin_s, end_s = arrivals[0].at_s, arrivals[-1].at_s
    span_s = end_s - begin_s
    outcomes = simulation.outcomes
    wanted = [o for o in outcomes if o.wait_s <= TIME_LIMIT_S[o.arrival.rank]]
    served = sum(o.ended_s is not None and o.ended_s <= end_s for o in wanted)
    share = 1.0 / span_s / len(simulation.nodes)
    waits = [min(o.wait_s, max(0.0, end_s - o.arrival.at_s)) for o in outcomes]
    realtime = sorted(
        wait for wait, o in zip(waits, outcomes, strict=True) if o.arrival.rank == REALTIME
    )
    return SaturationRow(
        policy=policy,
        n=len(outcomes),
        throughput_per_s=served / span_s,
        realtime_p95_wait_s=percentile(realtime, 0.95),
        gpu_in_use=in_use_s(outcomes, begin_s, end_s) * share,
        gpu_in_use_in_time=in_use_s(wanted, begin_s, end_s) * share,
        mean_wait_s=sum(waits) / len(waits),
        loads=simulation.tally.loads,
    )


def in_use_s(outcomes: Sequence[Outcome], begin_s: float, end_s: float) -> float:
    """Seconds between two moments in which a node served one of these, over all nodes."""
    by_node: dict[int, list[tuple[float, float]]] = {}
    for outcome in outcomes:
        if outcome.started_s is not None and outcome.ended_s is not None:
            served = (max(begin_s, outcome.started_s), min(end_s, outcome.ended_s))
            by_node.setdefault(outcome.node, []).append(served)
    return sum(_covered_s(sorted(spans)) for spans in by_node.values())


def _covered_s(spans: Sequence[tuple[float, float]]) -> float:
    covered_s, until_s = 0.0, float("-inf")
    for from_s, to_s in spans:
        covered_s += max(0.0, to_s - max(from_s, until_s))
        until_s = max(until_s, to_s)
    return covered_s


def _request(random: Random, at_s: float, name: ModelId, number: int) -> Arrival:
    service_s = min(30.0, max(0.3, random.lognormvariate(0.5, 0.6)))
    return Arrival(at_s, name, service_s, drawn_rank(f"{name}:0:{number}"))
