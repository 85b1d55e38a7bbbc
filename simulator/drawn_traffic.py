"""Traffic drawn from a seed for measuring: many models, few of them asked for often."""

from __future__ import annotations

from random import Random
from zlib import crc32

from contracts.ids import ModelId
from simulator.workloads import Arrival, Workload, WorkloadModel

SIZES_MB = (1200, 2500, 4700, 4700, 5200, 8100, 9300)


def drawn_models(count: int, *, parallel: int = 4) -> dict[ModelId, WorkloadModel]:
    """``count`` models of the common sizes, which load in 1 s + size / 600."""
    models = {}
    for number in range(count):
        name = ModelId(f"m{number:04}")
        size_mb = SIZES_MB[crc32(name.encode()) % len(SIZES_MB)]
        models[name] = WorkloadModel(
            model=name, size_mb=size_mb, load_s=1 + size_mb / 600, parallel=parallel, slo_s=2.0
        )
    return models


def mixed_traffic(count: int, *, seed: int, span_s: float, per_s: float) -> Workload:
    """Each third model is a timer, the others are asked for at random, the first the most.

    Parameters
    ----------
    count : int
        Models. Every one is asked for at least once in ``span_s``.
    per_s : float
        Requests for all of them together that come at random, besides the timers.
    """
    random = Random(seed)
    models = drawn_models(count)
    names = sorted(models)
    shares = [1.0 / (rank + 1) for rank in range(count)]
    arrivals = [Arrival(random.uniform(0.0, span_s), name, 2.0) for name in names]
    at_s = 0.0
    while (at_s := at_s + random.expovariate(per_s)) < span_s:
        (name,) = random.choices(names, shares)
        arrivals.append(Arrival(at_s, name, random.lognormvariate(0.5, 0.6)))
    for name in names[2::3]:
        period_s = random.choice((300.0, 600.0, 900.0, 3600.0))
        due_s = random.uniform(0.0, period_s)
        while due_s < span_s:
            arrivals.append(Arrival(due_s, name, 2.0))
            due_s += period_s
    return Workload(name=f"drawn-{count}", models=models, arrivals=tuple(sorted(arrivals)))
