"""From costs to figures, and where a part breaks."""

from __future__ import annotations

import pytest

from simulator.scale_costs import Budgets, CostBook, shares
from simulator.scale_figures import (
    Played,
    RedisCost,
    breaking_point,
    figures,
    foreseen_point,
)

REDIS = RedisCost(
    bytes_per_event=300.0, bytes_per_forecast=5_000.0, bytes_per_model_history=50_000.0,
    world_bytes=1e6, routing_bytes=1e6, tables_bytes=1e6, write_event_us=3.0, read_event_us=1.0,
    forecast_us=30.0, world_us=200.0, table_us=500.0, beat_us=50.0,
)  # fmt: skip


def book() -> CostBook:
    """A second of 100 requests with four events each."""
    times = iter(float(number) for number in range(100))
    found = CostBook(lambda: next(times) / 100.0)
    with found.timed("controller.fold", 400):
        pass
    found.charge("controller.round", 0.3)
    found.charge("codec.decode", 0.01, 400)
    found.charge("predictor.encode", 0.002, 10)
    found.charge("predictor.tick", 0.2)
    found.sized("events", 40_000)
    found.sized("table", 5_000_000)
    return found


PLAYED = Played(seconds=1, requests=100, events=400, tables=1, models=1000, gateways=2)


def test_a_block_is_charged_to_its_name():
    cost = book().cost("controller.fold")
    assert cost.count == 400
    assert cost.cpu_s == pytest.approx(0.01)
    assert cost.each_s == pytest.approx(0.01 / 400)
    assert cost.longest_s == pytest.approx(0.01)
    assert book().cost("nothing").each_s == 0.0


def test_figures_are_of_one_virtual_second():
    found = figures(book(), PLAYED, REDIS)
    assert found["fold_us_per_event"] == pytest.approx(25.0)
    assert found["controller_cores"] == pytest.approx(0.32)
    assert found["predictor_cores"] == pytest.approx(0.212)
    assert found["table_mb_per_s"] == pytest.approx(5.0)
    assert found["event_bytes"] == 100.0
    assert found["redis_cores"] == pytest.approx(
        1e-6 * (400 * 6.0 + 10 * 30.0 + 200.0 + 500.0 + 2 * 50.0)
    )
    assert found["redis_bytes"] == 200_000 * 300.0 + 1000 * 55_000.0 + 3e6
    assert "redis_bytes" not in figures(book(), PLAYED, None)


def test_shares_are_of_the_budget():
    found = shares(figures(book(), PLAYED, None), Budgets(round_s=0.6, table_mb_per_s=10.0))
    assert found["controller_round_s"] == pytest.approx(0.5)
    assert found["table_mb_per_s"] == pytest.approx(0.5)
    assert "redis_cores" not in found


def test_a_part_breaks_between_two_sizes():
    steps = [(1.0, {"a": 0.25, "b": 0.1}), (2.0, {"a": 0.5, "b": 0.1}), (4.0, {"a": 2.0, "b": 0.1})]
    assert breaking_point(steps, "a") == pytest.approx(2.0 * 2**0.5)
    assert breaking_point(steps, "b") is None
    assert breaking_point([(1.0, {"a": 1.5})], "a") == 1.0
    assert breaking_point([(1.0, {"a": 0.0}), (2.0, {"a": 1.5})], "a") == 2.0


def test_one_that_holds_is_foreseen_as_it_grew():
    steps = [(1.0, {"a": 0.1, "b": 0.2, "c": 0.0}), (2.0, {"a": 0.4, "b": 0.2, "c": 0.1})]
    assert foreseen_point(steps, "a") == pytest.approx(2.0 * 2.5**0.5)
    assert foreseen_point(steps, "b") is None
    assert foreseen_point(steps, "c") is None
    assert foreseen_point(steps[:1], "a") is None
