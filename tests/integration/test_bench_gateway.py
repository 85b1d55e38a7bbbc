"""The benchmark of the gateway runs and says all that it is to say. How fast, is not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli import bench_gateway_figures as figures
from cli.bench_gateway_stacks import find_nginx

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
RATIOS = {"c1_p50", "c1_p99", "c32_rps", "sse_delay_p50", "sse_delay_p99", "upload_rps"}


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli", "bench", "gateway", *options],
        cwd=ROOT, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip


@pytest.mark.timeout(120)
def test_a_quick_run_has_every_figure():
    done = run("--quick", "--json", "--stacks", "headstart,nginx")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert set(result["ratios"]) == RATIOS
    assert result["rss_mb"] > 0
    ours = result["stacks"]["headstart"]
    assert ours["c32_rps"] > 0
    assert ours["slow_late"] is not None
    # Each request of the run has told at least that it came, went and ended.
    assert result["telemetry_events"] > 100
    assert result["skipped"]["litellm"] == "not asked for"
    if find_nginx() is None:
        assert result["ratios"] == dict.fromkeys(RATIOS)
        assert "not installed" in result["skipped"]["nginx"]
    else:
        # In a second of a busy machine it may seem that nothing was added.
        nginx = result["stacks"]["nginx"]
        for name, ratio in result["ratios"].items():
            assert (ratio is not None) == (nginx[figures.RATIOS[name]] > 0), (name, nginx)


def test_a_stack_that_is_not_known():
    done = run("--stacks", "headstart,envoy")
    assert done.returncode == 2
    assert "envoy" in done.stderr
    assert len(done.stderr.splitlines()) == 1
