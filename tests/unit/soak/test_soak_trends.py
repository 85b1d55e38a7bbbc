from __future__ import annotations

import math

import numpy as np
import pytest

from tests.soak.bounds import Facts, rule_of
from tests.soak.trends import MOST, Rule, Verdict, judge, trend

HOUR_S = 3600.0
TIMES = [hour * HOUR_S / 10 for hour in range(180)]
FACTS = Facts(models=12, jobs=200, batches=9)


def series(per_day: float, *, level: float = 1000.0, noise: float = 5.0, seed: int = 1):
    random = np.random.default_rng(seed)
    return [
        level + per_day * at_s / 86_400.0 + noise * float(random.standard_normal())
        for at_s in TIMES
    ]


def walk(seed: int) -> list[float]:
    """Noise that remembers, as memory does: no trend, but long ways off its level."""
    random = np.random.default_rng(seed)
    value, found = 0.0, []
    for _ in TIMES:
        value = 0.95 * value + 3.0 * float(random.standard_normal())
        found.append(1000.0 + value)
    return found


def test_the_slope_is_the_median_of_the_slopes_of_all_pairs():
    found = trend([0.0, 86_400.0, 2 * 86_400.0], [1.0, 3.0, 4.0])
    assert found.slope == pytest.approx(1.5)
    # One sample that is far off changes nothing.
    values = [float(n) for n in range(50)]
    values[20] = 1e6
    days = [86_400.0 * n for n in range(50)]
    assert trend(days, values).slope == pytest.approx(1.0)


@pytest.mark.parametrize("per_day", [-200.0, 0.0, 200.0])
def test_the_interval_holds_the_slope_and_tells_its_sign(per_day):
    found = trend(TIMES, series(per_day))
    assert found.low <= per_day <= found.high
    assert found.rises == (per_day > 0.0)
    assert found.falls == (per_day < 0.0)


def test_independent_noise_is_called_a_trend_about_as_often_as_it_may_be():
    called = sum(
        found.rises or found.falls
        for found in (trend(TIMES, series(0.0, seed=seed)) for seed in range(100))
    )
    assert called <= 12


def test_noise_that_remembers_widens_the_interval():
    called = sum(
        judge(TIMES, walk(seed), Rule(ratio_per_day=0.001)).verdict is Verdict.GROWS
        for seed in range(60)
    )
    # Without the correction more than half of them are significant.
    assert called <= 9


def test_long_series_are_thinned_and_keep_their_slope():
    count = 3 * MOST
    times = [float(n) * 60.0 for n in range(count)]
    values = [n / 1440.0 for n in range(count)]
    assert trend(times, values).slope == pytest.approx(1.0)


@pytest.mark.parametrize("times", [[0.0, 1.0], [0.0, 1.0, 1.0], [2.0, 1.0, 3.0]])
def test_what_is_no_series_is_refused(times):
    with pytest.raises(ValueError, match="three samples or more"):
        trend(times, [1.0] * len(times))


def test_a_constant_is_flat_without_noise_around_it():
    found = judge(TIMES, [5.0] * len(TIMES), Rule())
    assert (found.trend.slope, found.trend.low, found.trend.high) == (0.0, 0.0, 0.0)
    assert (found.verdict, found.level, found.last) == (Verdict.FLAT, 5.0, 5.0)


@pytest.mark.parametrize(
    ("per_day", "rule", "verdict"),
    [
        (200.0, Rule(), Verdict.GROWS),
        (40.0, Rule(), Verdict.FLAT),  # there, but 4 % a day do not matter
        (200.0, Rule(floor_per_day=300.0), Verdict.FLAT),
        (-200.0, Rule(), Verdict.SHRINKS),
        (-40.0, Rule(), Verdict.FLAT),
        (200.0, Rule(bound=2000.0), Verdict.FILLS),
        (200.0, Rule(bound=900.0), Verdict.OVER),
        (200.0, Rule(bound=1150.0, slack=0.2), Verdict.FILLS),
    ],
)
def test_it_grows_when_it_is_there_and_matters(per_day, rule, verdict):
    found = judge(TIMES, series(per_day), rule)
    assert found.verdict is verdict
    assert found.verdict.is_bad == (verdict in (Verdict.GROWS, Verdict.OVER))
    assert found.limit_per_day == pytest.approx(rule.limit_per_day(found.level))


def test_what_has_stopped_growing_settles_and_what_grows_in_steps_does_not():
    full = [1000.0 + 300.0 * (1.0 - math.exp(-at_s / (2.5 * HOUR_S))) for at_s in TIMES]
    assert judge(TIMES, full, Rule()).verdict is Verdict.SETTLES
    steps = [1000.0 + 50.0 * (at_s // (2 * HOUR_S)) for at_s in TIMES]
    assert judge(TIMES, steps, Rule()).verdict is Verdict.GROWS


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 11])
def test_of_few_samples_nothing_is_said(values):
    found = judge(TIMES[: len(values)], values, Rule(bound=3.0, why="x"))
    assert found.verdict is Verdict.TOO_FEW
    assert not found.verdict.is_bad
    assert math.isnan(found.level) == (not values)
    assert (found.bound, found.why, found.samples) == (3.0, "x", len(values))


@pytest.mark.parametrize(
    ("name", "bound"),
    [
        ("redis.stream.headstart:events", 200_200),
        ("redis.stream.somebody:else", None),
        ("redis.keys.headstart:job-result", 200),
        ("redis.keys.headstart:history", 59),
        ("redis.keys.headstart:pins", None),
        ("redis.bytes.headstart:decisions", 20_000 * 4096),
        ("redis.bytes.rq:job", 200 * 4096),
        ("redis.bytes.headstart:history", 13 * 128 * 1024),
        ("redis.bytes.headstart:profiles", 12 * 8 * 1024),
        ("redis.bytes.headstart:world", 12 * 4 * 1024),
        ("redis.bytes.headstart:batches", 10 * 4096),
        ("redis.bytes.headstart:pins", None),
        ("redis.used_memory", 256 * 1024**2),
        ("gateway.rss_bytes", None),
        ("gateway.fds", None),
        ("gateway.anything", None),
    ],
)
def test_what_fills_by_design_has_a_named_bound(name, bound):
    rule = rule_of(name, FACTS)
    assert rule.bound == bound
    assert bool(rule.why) == (bound is not None)
    assert rule.limit_per_day(0.0) >= 0.0
