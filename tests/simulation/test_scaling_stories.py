"""Stories of a fleet in virtual time: each with what was ordered, when, and for which reason."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from contracts.reasons import Reason
from contracts.scaling import Scaling, ScalingTarget
from simulator.fleet import Faults, Fleet, FleetReport

HOUR_S = 3600.0
TARGET = ScalingTarget(
    name="chat", capacity=2.0, start_s=90.0, smallest=1, largest=12, stabilisation_s=300.0
)


def poisson(
    rate_per_s: Callable[[float], float], *, until_s: float, highest: float, seed: int = 1
) -> list[tuple[float, float]]:
    """Arrivals by thinning (Lewis and Shedler 1979); each takes 10 s on average."""
    chance = random.Random(seed)
    arrivals, at_s = [], 0.0
    while (at_s := at_s + chance.expovariate(highest)) < until_s:
        if chance.random() * highest < rate_per_s(at_s):
            arrivals.append((at_s, chance.expovariate(0.1)))
    return arrivals


def nothing(_at_s: float) -> None:
    return None


def played(
    arrivals, *, target=TARGET, expects=nothing, until_s=2 * HOUR_S, **options
) -> FleetReport:
    fleet = Fleet(target, start_s=90.0, patience_s=5.0, **options)
    return fleet.play(arrivals, expects, until_s=until_s)


def reasons(report: FleetReport) -> set[Reason]:
    return {one.reason for one in report.said}


def orders(report: FleetReport) -> list[Scaling]:
    return [one for one in report.said if one.changed]


def holds_a_window(report: FleetReport, target: ScalingTarget = TARGET) -> bool:
    """Whether nothing ever went within a window after something was added: no flapping."""
    before, added_at_s = 1, -math.inf
    for one in orders(report):
        if one.replicas > before:
            added_at_s = one.at_s
        elif one.at_s - added_at_s < target.stabilisation_s * 0.95:
            return False
        before = one.replicas
    return True


def test_a_ramp_is_followed():
    ramp = poisson(lambda at_s: 0.2 + 0.8 * at_s / HOUR_S, until_s=HOUR_S, highest=1.0)
    report = played(ramp, until_s=HOUR_S)
    wanted = [one.replicas for one in orders(report)]
    assert 6 <= wanted[-1] <= 9
    assert holds_a_window(report)
    assert reasons(report) >= {Reason.LIVE_NEED, Reason.STARTING, Reason.ENOUGH}


def test_a_spike_is_a_panic_and_all_of_it_stays_for_a_window():
    calm = poisson(lambda _: 0.1, until_s=2 * HOUR_S, highest=0.1)
    spike = [(1800.0 + n * 0.5, 10.0) for n in range(40)]
    report = played(sorted(calm + spike), target=replace(TARGET, largest=30))
    panics = [one for one in orders(report) if one.reason is Reason.PANIC and one.at_s >= 1800.0]
    assert panics[0].at_s <= 1820.0
    assert max(one.replicas for one in panics) >= 8
    after = [one for one in orders(report) if one.at_s > panics[-1].at_s]
    assert after[0].reason is Reason.NEEDED_LESS
    assert after[0].at_s >= panics[-1].at_s + TARGET.stabilisation_s
    assert after[-1].replicas in (1, 2)


@pytest.mark.case("P133")
def test_load_that_flaps_makes_no_fleet_that_does():
    def flapping(at_s: float) -> float:
        return 0.6 if int(at_s / 30) % 2 else 0.05

    report = played(poisson(flapping, until_s=2 * HOUR_S, highest=0.6))
    assert holds_a_window(report)
    assert Reason.STABILISING in reasons(report)


def test_a_dead_scaler_is_asked_less_and_less_and_obeyed_by_when_it_is_back():
    steady = poisson(lambda _: 0.6, until_s=2 * HOUR_S, highest=0.6)
    dead = Faults(dead=((0.0, 3000.0),))
    report = played(steady, faults=dead)
    assert report.orders >= 1
    late = [one for one in orders(report) if one.at_s >= 3000.0]
    assert late, "it never came back"
    tried = [one for one in orders(report) if one.at_s < 3000.0]
    assert tried[0].replicas > 1
    healthy = played(steady)
    assert report.late > healthy.late


def test_capacity_that_never_comes_is_said_and_not_ordered_again_and_again():
    steady = poisson(lambda _: 0.6, until_s=HOUR_S, highest=0.6)
    report = played(steady, until_s=HOUR_S, faults=Faults(barren=((0.0, HOUR_S),)))
    assert Reason.START_OVERDUE in reasons(report) or Reason.AT_LARGEST in reasons(report)
    assert max(one.replicas for one in report.said) <= TARGET.largest
    assert report.orders <= TARGET.largest


@pytest.mark.case("P155")
def test_to_none_and_back_at_the_first_request():
    target = ScalingTarget(
        name="chat", capacity=2.0, start_s=90.0, smallest=0, largest=4, idle_s=600.0
    )
    report = played([(10.0, 5.0), (5000.0, 5.0)], target=target)
    said = [(one.replicas, one.reason) for one in orders(report)]
    assert said == [(0, Reason.NOBODY_ASKS), (1, Reason.WOKEN), (0, Reason.NOBODY_ASKS)]
    woken = orders(report)[1]
    assert woken.at_s - 5000.0 <= 10.0
    assert report.longest_wait_s <= 90.0 + 10.0


def test_with_what_is_to_come_fewer_are_late_for_little_more():
    """A wave that is known a start ahead: what a right forecast is worth at best."""

    def wave(at_s: float) -> float:
        return 0.5 + 0.45 * math.sin(2 * math.pi * at_s / 1800.0)

    arrivals = poisson(wave, until_s=4 * HOUR_S, highest=0.95)

    def expects(at_s: float) -> float:
        at_once = 10.0 * max(wave(at_s + 90), wave(at_s))
        return at_once + 1.645 * math.sqrt(at_once)

    reactive = played(arrivals, until_s=4 * HOUR_S)
    foreseen = played(arrivals, until_s=4 * HOUR_S, expects=expects)
    assert foreseen.late < reactive.late
    assert foreseen.replica_s <= 1.15 * reactive.replica_s
    assert Reason.FORECAST_NEED in reasons(foreseen)


def test_what_was_ordered_and_is_not_wanted_any_more_never_comes():
    """A bound that falls while replicas start: those that start go first."""
    fleet = Fleet(TARGET, start_s=90.0, patience_s=5.0)
    fleet._scale(4)
    fleet._scale(2)
    assert len(fleet._starting) == 1
    for at_s, _, act in sorted(fleet._due):
        fleet._pass(at_s)
        act()
    assert len(fleet._load) == 2
