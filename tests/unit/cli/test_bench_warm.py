"""The benchmark of the warm tier runs on a small file and says all its figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cli import bench_warm
from contracts.errors import Invalid
from contracts.ports import FileWarmth


def run(*options: str) -> str:
    app = typer.Typer()
    bench_warm.register(app)
    app.callback()(lambda: None)
    done = CliRunner().invoke(app, ["warm", "--size-mb", "4", "--rounds", "1", *options])
    if done.exception is not None:
        raise done.exception
    return done.stdout


def test_its_figures_are_told_by_mincore_and_the_clock(tmp_path: Path):
    found = json.loads(run("--json", "--folder", str(tmp_path)).splitlines()[-1])
    assert set(found) == {
        "size_mb", "rounds", "cold_read_s", "cold_cached_ratio", "warm_up_s", "warm_read_s",
        "warm_cached_ratio", "speed_up",
    }  # fmt: skip
    assert found["size_mb"] == 4
    # In a file system without a disk nothing is ever cold: then both are 1.
    assert 0.0 <= found["cold_cached_ratio"] <= found["warm_cached_ratio"] <= 1.0
    assert found["warm_cached_ratio"] > 0.9
    assert list(tmp_path.iterdir()) == []


def test_a_table_for_people():
    assert "speed_up" in run("--rate-mb", "1000")


async def test_where_nothing_can_be_seen_it_says_so(monkeypatch: pytest.MonkeyPatch):
    class Blind:
        async def look(self, _files: tuple[str, ...]) -> FileWarmth:
            return FileWarmth(size_bytes=1, cached_bytes=None)

    with pytest.raises(Invalid, match="cannot be seen"):
        await bench_warm._cached_ratio(Blind())  # type: ignore[arg-type]  # what it asks of it
