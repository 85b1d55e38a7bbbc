from __future__ import annotations

import math

import pytest

from simulator.report import closure, percentile, row


def test_the_value_at_the_index_floor_of_share_times_n():
    values = [float(n) for n in range(10)]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.95, 0.99)] == [0.0, 5.0, 9.0, 9.0]
    assert percentile(values, 0.27) == 2.0
    assert percentile(values, 1.0) == 9.0
    assert percentile([3.0], 0.99) == 3.0
    assert math.isnan(percentile([], 0.5))


def test_a_row_sums_up():
    waits = [(0.0, 2.0, False), (2.0, 2.0, False), (2.1, 2.0, True), (9.9, 20.0, True)]
    found = row("lru", waits, loads=2, prefetches=1, wasted_prefetches=1)
    assert found.as_dict() == {
        "policy": "lru",
        "n": 4,
        "cold": 0.5,
        "slo": 0.75,
        "mean_wait_s": pytest.approx(3.5),
        "p50_wait_s": 2.1,
        "p95_wait_s": 9.9,
        "p99_wait_s": 9.9,
        "loads": 2,
        "prefetches": 1,
        "wasted_prefetches": 1,
    }


def test_nothing_sums_up_to_no_number():
    found = row("lru", [], loads=0, prefetches=0, wasted_prefetches=0)
    assert found.n == 0
    assert all(math.isnan(value) for value in (found.cold, found.slo, found.mean_wait_s))


def test_closure_runs_from_lru_to_clairvoyance():
    assert closure(0.4, lru=0.4, oracle=0.9) == 0.0
    assert closure(0.9, lru=0.4, oracle=0.9) == 1.0
    assert closure(0.65, lru=0.4, oracle=0.9) == pytest.approx(0.5)
    assert closure(0.3, lru=0.4, oracle=0.9) == pytest.approx(-0.2)
    assert closure(0.5, lru=0.5, oracle=0.5) is None
