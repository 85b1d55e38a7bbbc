"""One policy over one workload: a baseline rule or the product itself, summed up in a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from contracts.config import PlannerConfig, PredictorConfig
from contracts.errors import Invalid
from contracts.events import AnyEvent
from controller.policies.registry import POLICIES
from predictor.engine import PredictorEngine
from simulator.product import ProductDriver
from simulator.report import Row, row
from simulator.rules import RULES
from simulator.simulation import Driver, Simulation
from simulator.workloads import Workload

_STEPS_AT_ONCE = 10_000
COUNTS_MODELS = "localai-lru"
"""The one rule that bounds the number of models and does not look at memory."""


def known_policies() -> tuple[str, ...]:
    """Every name that ``compare`` takes: the baseline rules, then what the product adds."""
    return (*RULES, *(name for name in POLICIES if name not in RULES))


def compare(
    policy: str,
    workload: Workload,
    capacity_mb: int,
    *,
    history: Iterable[AnyEvent] = (),
    reserve_ratio: float = 0.0,
    played: Callable[[int], None] = lambda _: None,
) -> Row:
    """What ``policy`` makes of ``workload``; the same arguments give the same row.

    Parameters
    ----------
    policy : str
        A baseline's name means the rule, also where the product has a policy of that name.
    history : iterable of events
        What the predictor learns from before the first request; rules look at nothing.
    reserve_ratio : float
        Share of memory that the product leaves free; rules use all of it.
    played : callable
        Told how many requests have been played.

    Raises
    ------
    Invalid
        An unknown policy, or a capacity that does not hold the largest model.
    """
    driver: Driver
    if policy in RULES:
        driver = RULES[policy](workload, capacity_mb)
    elif policy in POLICIES:
        driver = _product(policy, history, reserve_ratio)
    else:
        raise Invalid(f"unknown policy {policy!r}; known are {', '.join(known_policies())}")
    simulation = Simulation(workload, capacity_mb, driver, check_memory=policy != COUNTS_MODELS)
    simulation.run(played)
    return summed_up(policy, simulation)


def summed_up(policy: str, simulation: Simulation) -> Row:
    """The row of a simulation that has run."""
    models, tally = simulation.models, simulation.tally
    return row(
        policy,
        [(o.wait_s, models[o.arrival.model].spec.slo_s, o.cold) for o in simulation.outcomes],
        loads=tally.loads,
        prefetches=tally.prefetches,
        wasted_prefetches=tally.prefetches_wasted,
    )


def _product(policy: str, history: Iterable[AnyEvent], reserve_ratio: float) -> ProductDriver:
    # Counts and latencies are not asked for here; the next-use curves do not depend on them.
    engine = PredictorEngine(PredictorConfig(), signals=False)
    for event in history:
        while not engine.pass_time(event.at_s, steps=_STEPS_AT_ONCE):
            pass
        engine.observe(event)
    return ProductDriver(policy, engine, PlannerConfig(policy=policy, reserve_ratio=reserve_ratio))
