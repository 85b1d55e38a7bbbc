"""One policy over one workload: a baseline rule or the product itself, summed up in a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from contracts.config import PlannerConfig, PredictorConfig
from contracts.errors import Invalid
from contracts.events import AnyEvent
from controller.policies.registry import POLICIES
from predictor.engine import PredictorEngine
from simulator.checkers import COUNTS_MODELS, Watched, check_plan
from simulator.faults import NO_FAULTS, Faults
from simulator.product import ProductDriver
from simulator.report import Row, SimulationRow, closure, row
from simulator.rules import RULES
from simulator.simulation import Driver, Simulation
from simulator.workloads import Workload

CHECKED_EVERY = 500
"""Happenings between two looks at the accounts of a run that is played for its figures."""

LRU, ORACLE = "lru", "oracle"
"""The two policies that ``closure`` is measured between."""

LOOKS_AHEAD = frozenset({"headstart"})
"""Policies of the product that ask for forecasts; the others are played without a predictor."""

_ALL_STEPS = 10**9
"""Nobody waits for an answer meanwhile: history is told in one go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a run is played in, besides the workload.

    Attributes
    ----------
    capacity_mb : int
        Memory of each node.
    reserve_ratio : float
        Share of it that the product leaves free; rules use all of it.
    turns : bool
        Whether the product may drain busy models, as it does in a deployment. The plain world
        evicts idle models alone.
    checked_every : int
        See ``checkers.Watched``.
    """

    capacity_mb: int
    nodes: int = 1
    reserve_ratio: float = 0.0
    faults: Faults = NO_FAULTS
    turns: bool = False
    checked_every: int = CHECKED_EVERY


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
        ``headstart:prefetch=false:window_s=30`` is the product with other parameters.
    history : iterable of events
        What the predictor learns from before the first request; rules look at nothing.
    played : callable
        Told how many requests have been played.

    Raises
    ------
    Invalid
        An unknown policy or parameter, or a capacity that does not hold the largest model.
    Violation
        Something that must hold in every run did not.
    """
    setting = Setting(capacity_mb=capacity_mb, reserve_ratio=reserve_ratio)
    simulation = play(policy, workload, setting, history=history, played=played)
    return summed_up(policy, simulation)


def play(
    policy: str,
    workload: Workload,
    setting: Setting,
    *,
    history: Iterable[AnyEvent] = (),
    played: Callable[[int], None] = lambda _: None,
    watch: Callable[[Driver], Driver] = lambda driver: driver,
) -> Simulation:
    """Run it to the end, checked; see ``compare``. ``watch`` may stand in front of the driver."""
    driver: Driver
    name, _, options = policy.partition(":")
    if name in RULES and not options:
        driver = RULES[name](workload, setting.capacity_mb)
    elif name in POLICIES:
        driver = _product(name, options, history, setting)
    else:
        raise Invalid(f"unknown policy {policy!r}; known are {', '.join(known_policies())}")
    watched = Watched(driver, every=setting.checked_every)
    simulation = Simulation(
        workload,
        setting.capacity_mb,
        watch(watched),
        check_memory=policy != COUNTS_MODELS,
        nodes=setting.nodes,
        faults=setting.faults,
    )
    simulation.run(played)
    watched.check_end()
    return simulation


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


def simulation_row(policy: str, simulation: Simulation, ends: Mapping[str, Row]) -> SimulationRow:
    """The row with all that the simulation can say.

    Parameters
    ----------
    ends : mapping
        The rows of ``lru`` and ``oracle`` on the same workload and memory.
    """
    summed = summed_up(policy, simulation)
    tally = simulation.tally
    return SimulationRow(
        workload=simulation.workload.name,
        capacity_mb=simulation.capacity_mb,
        policy=policy,
        n=summed.n,
        cold=summed.cold,
        slo=summed.slo,
        closure=closure(summed.slo, lru=ends[LRU].slo, oracle=ends[ORACLE].slo),
        mean_wait_s=summed.mean_wait_s,
        p50_wait_s=summed.p50_wait_s,
        p95_wait_s=summed.p95_wait_s,
        p99_wait_s=summed.p99_wait_s,
        loads=summed.loads,
        prefetches=summed.prefetches,
        wasted_prefetches=summed.wasted_prefetches,
        unloads=tally.unloads,
        gb_hours=tally.held_mb_s / 1000.0 / 3600.0,
    )


def _product(
    name: str, options: str, history: Iterable[AnyEvent], setting: Setting
) -> ProductDriver:
    planner = PlannerConfig(policy=name, reserve_ratio=setting.reserve_ratio)
    if not setting.turns:
        planner = replace(planner, turn_s=None)
    predictor = PredictorConfig()
    for option in filter(None, options.split(":")):
        key, _, text = option.partition("=")
        if key in _fields(PlannerConfig()):
            planner = replace(planner, **{key: _value(key, text, getattr(PlannerConfig(), key))})
        elif key in _fields(PredictorConfig()):
            predictor = replace(predictor, **{key: _value(key, text, getattr(predictor, key))})
        else:
            known = ", ".join(sorted(_fields(PlannerConfig()) | _fields(PredictorConfig())))
            raise Invalid(f"policy {name}: no parameter {key!r}; there are {known}")
    if name not in LOOKS_AHEAD:
        return ProductDriver(name, None, planner, on_plan=check_plan)
    # Counts and latencies are not asked for here; the next-use curves do not depend on them.
    engine = PredictorEngine(predictor, signals=False)
    for event in history:
        engine.pass_time(event.at_s, steps=_ALL_STEPS)
        engine.observe(event)
    return ProductDriver(name, engine, planner, on_plan=check_plan)


def _fields(config: PlannerConfig | PredictorConfig) -> set[str]:
    """Parameters that are one number, word or switch, or words with a plus between."""
    return {
        field.name
        for field in fields(config)
        if field.name != "policy"
        and isinstance(getattr(config, field.name), int | float | str | tuple)
    }


def _value(key: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise Invalid(f"{key}={text}: must be true or false")
        return text == "true"
    if isinstance(default, tuple):
        return tuple(filter(None, text.split("+")))
    try:
        return type(default)(text)
    except ValueError:
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise Invalid(f"{key}={text}: must be {kind}") from None
