from __future__ import annotations

import numpy as np

from tests.soak.bounds import Facts
from tests.soak.quantiles import FEWEST, shift
from tests.soak.report import bad, by_hour, judged, latency_shift, left_open, shown, shown_shift
from tests.soak.trends import Verdict

FACTS = Facts(models=12, jobs=200, batches=9)


def latencies(count: int, *, scale: float = 1.0, seed: int = 1) -> list[float]:
    random = np.random.default_rng(seed)
    return [float(value) for value in scale * random.lognormal(-6.0, 0.5, count)]


def test_a_p99_of_the_same_kind_is_flat_and_a_worse_one_grows():
    before = latencies(2000)
    assert shift(before, latencies(2000, seed=2), seed=1).verdict is Verdict.FLAT
    worse = shift(before, latencies(2000, scale=2.0, seed=2), seed=1)
    assert worse.verdict is Verdict.GROWS
    assert worse.low > 0.0
    assert worse.last > 1.5 * worse.first
    better = shift(latencies(2000, scale=2.0, seed=2), before, seed=1)
    assert better.verdict is Verdict.SHRINKS


def test_what_is_worse_but_does_not_matter_is_flat():
    before, after = latencies(4000), latencies(4000, scale=2.0, seed=2)
    assert shift(before, after, seed=1, floor=1.0).verdict is Verdict.FLAT
    assert shift(before, after, seed=1, ratio=5.0).verdict is Verdict.FLAT
    assert shift(after, before, seed=1, floor=1.0).verdict is Verdict.FLAT


def test_one_burst_is_no_proof():
    before, after = latencies(2000), latencies(2000, seed=2)
    after[100:122] = [1.0] * 22
    found = shift(before, after, seed=1)
    assert found.last > 1.5 * found.first
    assert found.verdict is Verdict.FLAT


def test_of_few_requests_nothing_is_said():
    few = latencies(FEWEST - 1)
    found = shift(few, latencies(2000), seed=1)
    assert found.verdict is Verdict.TOO_FEW
    assert shown_shift(found)["first_ms"] is None


def test_the_same_seed_says_the_same():
    before, after = latencies(2000), latencies(2000, scale=1.2, seed=2)
    assert shift(before, after, seed=5) == shift(before, after, seed=5)


def test_the_warm_up_is_left_out_and_a_leak_is_named():
    samples = [
        (
            hour / 10,
            {
                "gateway.fds": 500.0 if hour < 60 else 40.0,
                "gateway.rss_bytes": 80e6 + 1e6 * hour,
            },
        )
        for hour in range(240)
    ]
    series = judged(samples, 24.0, FACTS)
    assert series["gateway.fds"].verdict is Verdict.FLAT
    assert series["gateway.fds"].samples == 180
    latency = latency_shift([], 24.0, seed=1)
    assert bad(series, latency, {"restarts of gateway": 0, "tracebacks": 2}) == [
        "gateway.rss_bytes grows",
        "2 tracebacks",
    ]
    one = shown(series)["gateway.rss_bytes"]
    assert abs(one["slope_per_day"] - 240e6) < 1.0
    assert one["ci"][0] <= one["slope_per_day"] <= one["ci"][1]
    assert (one["verdict"], one["bound"]) == ("grows", None)


def test_the_last_quarter_is_held_against_the_first():
    first = [(hour / 1000 * 6, value) for hour, value in enumerate(latencies(1000))]
    middle = [(12.0, 9.0)] * 500
    last = [
        (18.0 + hour / 1000 * 6, value)
        for hour, value in enumerate(latencies(1000, scale=3.0, seed=2))
    ]
    found = latency_shift(first + middle + last, 24.0, seed=1)
    assert found.verdict is Verdict.GROWS
    assert bad({}, found, {}) == ["p99 of added latency grows"]
    assert shown_shift(found)["last_ms"] > shown_shift(found)["first_ms"] > 0.0


def test_hours_have_their_figures():
    probes = [(0.5, 0.001), (0.6, 0.003), (2.1, 0.002)]
    assert by_hour(probes) == [
        {"hour": 0, "n": 2, "p50_ms": 3.0, "p99_ms": 3.0},
        {"hour": 2, "n": 1, "p50_ms": 2.0, "p99_ms": 2.0},
    ]


def test_what_is_left_open_is_told_beyond_what_pools_keep():
    calm = {"gateway.fds": 20.0, "control.fds": 15.0, "gateway.threads": 1.0, "redis.fds": 9.0}
    drained = {
        "gateway.fds": 37.0,
        "control.fds": 31.0,
        "redis.fds": 90.0,
        "gateway.threads": 40.0,
        "new.fds": 99.0,
    }
    assert left_open(calm, drained) == {"file descriptors left open (gateway.fds)": 17}
