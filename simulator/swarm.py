"""Random small worlds, with faults, played by every policy: what no test was written for.

Everything about a world depends on its seed alone, so that a failure is shown again by one
number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from contracts.ids import ModelId
from simulator.checkers import COUNTS_MODELS
from simulator.comparison import Setting, known_policies, play
from simulator.faults import NO_FAULTS, drawn_faults
from simulator.workloads import Arrival, Workload, WorkloadModel

MAX_REQUESTS = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmWorld:
    """One drawn world."""

    seed: int
    workload: Workload
    setting: Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A policy broke something; ``what`` says what."""

    seed: int
    policy: str
    what: str


def drawn_world(seed: int) -> SwarmWorld:
    """Up to eight models on up to three nodes, a few minutes to an hour, perhaps with faults."""
    random = Random(seed)
    nodes = random.choice((1, 1, 1, 2, 3))
    capacity_mb = random.choice((8_000, 12_000, 24_000))
    models = _models(random, capacity_mb)
    span_s = random.choice((300.0, 1200.0, 3600.0))
    arrivals = _arrivals(random, sorted(models), span_s)
    largest_mb = max(model.size_mb for model in models.values())
    faults = NO_FAULTS
    if random.random() < 0.7:
        faults = drawn_faults(
            seed, span_s=span_s, nodes=nodes, spare_mb=max(0, capacity_mb - largest_mb)
        )
    return SwarmWorld(
        seed=seed,
        workload=Workload(name=f"swarm-{seed}", models=models, arrivals=arrivals),
        setting=Setting(
            capacity_mb=capacity_mb,
            nodes=nodes,
            faults=faults,
            turns=random.random() < 0.5,
            checked_every=1,
        ),
    )


def swarm(
    count: int,
    seed: int,
    *,
    policies: tuple[str, ...] = (),
    done: Callable[[int], None] = lambda _: None,
) -> tuple[Failure, ...]:
    """Play ``count`` worlds from ``seed`` on by every policy; what failed.

    Parameters
    ----------
    policies : tuple of str
        Empty: all there are, and the product's versions of those that exist twice.
    done : callable
        Told how many worlds have been played.
    """
    failures = []
    for number in range(count):
        world = drawn_world(seed + number)
        for policy in policies or swarm_policies():
            # The rule that counts models cannot know that another program took its memory.
            if policy == COUNTS_MODELS and world.setting.faults.changes:
                continue
            try:
                play(policy, world.workload, world.setting)
            except Exception as error:  # noqa: BLE001 - any failure of any policy is a finding
                what = f"{type(error).__name__}: {error}"
                failures.append(Failure(seed=world.seed, policy=policy, what=what))
        done(number + 1)
    return tuple(failures)


def swarm_policies() -> tuple[str, ...]:
    """Every rule, and every policy of the product."""
    from controller.policies.registry import POLICIES

    return (*known_policies(), *(f"{name}:tick_s=1.0" for name in POLICIES))


def _models(random: Random, capacity_mb: int) -> dict[ModelId, WorkloadModel]:
    names = [ModelId(f"m{number}") for number in range(random.randint(1, 8))]
    return {
        name: WorkloadModel(
            model=name,
            size_mb=random.randint(500, capacity_mb),
            load_s=random.choice((0.5, 3.0, 8.0, 25.0)),
            parallel=random.randint(1, 4),
            slo_s=2.0,
        )
        for name in names
    }


def _arrivals(random: Random, names: list[ModelId], span_s: float) -> tuple[Arrival, ...]:
    """Timers, people and bursts; some at the very same instant."""
    arrivals: list[Arrival] = []
    for name in names:
        match random.choice(("timer", "people", "burst")):
            case "timer":
                period_s = random.choice((20.0, 60.0, 300.0))
                times = [period_s * turn for turn in range(int(span_s / period_s))]
            case "people":
                times = [random.uniform(0.0, span_s) for _ in range(random.randint(1, 20))]
            case _:
                begin_s = random.uniform(0.0, span_s)
                times = [begin_s + random.choice((0.0, 0.5, 3.0)) * n for n in range(10)]
        arrivals += [
            Arrival(at_s, name, random.choice((0.0, 0.5, 4.0, 20.0)), random.choice((0, 0, 1, 2)))
            for at_s in times
        ]
    return tuple(sorted(arrivals)[:MAX_REQUESTS]) or (Arrival(0.0, names[0], 1.0),)
