"""``headstart bench scale`` at a size that takes a second or two, real server included."""

from __future__ import annotations

import json
import sys

import pytest

from cli import bench_scale
from cli.__main__ import main
from cli.scale_run import ScaleRun
from contracts.world import Residency
from simulator.scale_fleet import ScaleSize

pytestmark = [pytest.mark.integration, pytest.mark.enable_socket]

TINY = ScaleSize(models=12, nodes=3, requests_per_s=20.0, gateways=2, listed_on=2)


def test_a_run_keeps_its_promises():
    run = ScaleRun(TINY, seed=3, warm_up=1)
    run.play(8)
    assert run.events > 3.5 * run.requests > 0
    assert run.tables == 8
    parts = {name.partition(".")[0] for name in run.costs.costs}
    assert parts >= {"gateway", "codec", "controller", "predictor", "control"}
    world = run.fleet.world()
    assert sum(status.residency is Residency.HOT for status in world.models.values()) >= 7


def test_the_quick_one_says_what_each_part_costs_and_what_breaks(monkeypatch, capsys):
    monkeypatch.setattr(bench_scale, "QUICK", TINY)
    monkeypatch.setattr(bench_scale, "STEP_S", 3)
    monkeypatch.setattr(bench_scale, "DIMENSIONS", ("all",))
    monkeypatch.setattr(sys, "argv", ["headstart", "bench", "scale", "--quick", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    found = json.loads(said.out.splitlines()[-1])
    assert ended.value.code == 0
    assert "virtual seconds" in said.err
    assert found["seed"] == 1
    assert found["figures"]["redis_bytes"] > 100_000
    assert 200 < found["redis"]["bytes_per_event"] < 400
    assert set(found["shares"]) >= {"controller_cores", "predictor_cores", "redis_cores"}
    (swept,) = found["sweep"]
    assert [step["factor"] for step in swept["steps"]] == [1.0, 2.0]
    assert swept["first"] is None
    assert set(swept["foreseen_at_factor"]) <= set(found["shares"])
    assert len(list(bench_scale.lines(found))) > 20
