"""``headstart bench planner`` and ``bench saturation`` from the command line."""

from __future__ import annotations

import json
import sys

import pytest

from cli.__main__ import main


@pytest.fixture
def headstart(monkeypatch, capsys):
    def headstart(*arguments):
        monkeypatch.setattr(sys, "argv", ["headstart", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr()

    return headstart


def test_the_planner_is_timed_at_two_sizes(headstart, monkeypatch):
    from cli import bench_planner

    assert [stage.models for stage in bench_planner.STAGES] == [100, 5000]
    few = tuple(
        bench_planner.Stage(models=models, capacity_mb=24_000, played_s=30.0, per_s=0.5)
        for models in (100, 120)
    )
    monkeypatch.setattr(bench_planner, "HISTORY_S", 60.0)
    monkeypatch.setattr(bench_planner, "STAGES", few)
    status, said = headstart("bench", "planner", "--policy", "lru", "--json")
    found = json.loads(said.out)
    assert status == 0
    assert list(found) == [
        *("models_100_p50_ms", "models_100_p99_ms"),
        *("models_120_p50_ms", "models_120_p99_ms"),
    ]
    assert all(0.0 < took_ms < 1000.0 for took_ms in found.values())
    status, said = headstart("bench", "planner", "--policy", "lru")
    assert said.out.count("\n") == 4


SMALL = ("--minutes", 5, "--models", 10, "--policy", "lru")


def test_gains_are_told_against_localais_lru(headstart):
    status, said = headstart("bench", "saturation", *SMALL, "--per-s", 1.0, "--json")
    found = json.loads(said.out)
    assert status == 0
    localai, lru = found["rows"]
    assert (localai["policy"], localai["throughput_gain"]) == ("localai-lru", 0.0)
    gain = lru["throughput_per_s"] / localai["throughput_per_s"] - 1.0
    assert lru["throughput_gain"] == pytest.approx(gain)
    assert (found["per_s"], found["models"], found["seed"]) == (1.0, 10, 1)


def test_the_knee_is_looked_for(headstart, monkeypatch):
    from cli import bench_saturation

    monkeypatch.setattr(bench_saturation, "_MOST_PER_S", 0.3)
    _, said = headstart("bench", "saturation", *SMALL)
    assert "localai-lru at 0.25 requests/s" in said.err
    assert "localai-lru at 0.312 requests/s" in said.err
    assert said.out.splitlines()[2].startswith("localai-lru")
