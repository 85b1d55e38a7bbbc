"""``headstart gpu`` against a control API that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from cli.__main__ import build_app
from contracts.readings import GpuReading, ProbeReading
from tests.control_server import RunningControl

pytestmark = pytest.mark.integration

GIB = 1024**3


@pytest.fixture
def control() -> Iterator[RunningControl]:
    control = RunningControl(minutes=2).start()
    yield control
    control.stop()


def run(control: RunningControl, *arguments: str) -> str:
    words = ["gpu", *arguments, "--url", control.url]
    result = CliRunner().invoke(build_app(words), words, env={"COLUMNS": "200"})
    assert result.exception is None, result.output
    return result.output


def test_the_gpu_is_handed_over_and_taken_back(control: RunningControl):
    assert "the GPU is ours" in run(control, "status")
    said = run(control, "yield", "--minutes", "30", "--keep-mb", "2000", "--note", "a game")
    assert "handed over by hand (a game) until " in said
    assert "models hold" in said
    wish = control.do(control.lively.settings.gpu_yield())
    assert wish is not None
    assert wish.keep_bytes == 2000 * 1024**2
    assert "handed over by hand" in run(control, "status")
    assert "the GPU is ours" in run(control, "resume")
    assert "until it is taken back" in run(control, "yield")


def test_quiet_hours_are_a_schedules(control: RunningControl):
    lively = control.lively
    lively.world = replace(lively.world, quiet_until_s=lively.clock.now_s() + 600.0)
    control.do(control.freshen())
    assert "handed over by a schedule (quiet hours) until " in run(control, "status")


def test_each_card_is_shown_with_what_it_tells(control: RunningControl):
    assert "no card is seen" in run(control, "status")
    lively = control.lively
    name, node = next(iter(lively.world.nodes.items()))
    card = GpuReading(
        uuid="GPU-8f93",
        name="NVIDIA L4",
        memory_total_bytes=24 * GIB,
        memory_free_bytes=18 * GIB,
        utilization_ratio=0.42,
    )
    read = replace(node, reading=ProbeReading(at_s=1.0, gpus=(card,)))
    lively.world = replace(lively.world, nodes={**lively.world.nodes, name: read})
    control.do(control.freshen())
    said = run(control, "status")
    for word in ("GPU-8f93", "NVIDIA L4", "6.0 GiB", "24.0 GiB", "42%", " - "):
        assert word in said
    told = json.loads(run(control, "status", "--json").splitlines()[-1])
    assert told["nodes"][0]["gpus"][0]["uuid"] == "GPU-8f93"
    assert told["gpu"]["yielded"] is False
