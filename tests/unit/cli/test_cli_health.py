"""``headstart health`` and ``serve``: which process, and what each check says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.__main__ import build_app
from cli.health import _fresh, _running
from cli.serve import Service
from contracts.errors import Invalid, Transient


def _proc(folder: Path, **commands: str) -> Path:
    for number, command in commands.items():
        entry = folder / number.removeprefix("p")
        entry.mkdir()
        (entry / "cmdline").write_bytes("\0".join([*command.split(), ""]).encode())
    (folder / "self").mkdir()
    (folder / "99").mkdir()  # gone before it was read
    return folder


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python -m api.gateway", (Service.GATEWAY, None)),
        ("/opt/headstart/bin/python -m workers --queue batch", (Service.WORKERS, "batch")),
        ("python -m workers --queue all --gateway-url http://g", (Service.WORKERS, "all")),
        ("python -m controller", (Service.CONTROLLER, None)),
    ],
)
def test_the_service_of_a_container_is_told_by_its_processes(
    tmp_path: Path, command: str, found: tuple[Service, str | None]
):
    proc = _proc(tmp_path, p1="/sbin/docker-init -- headstart", p7=command, p20="headstart health")
    assert _running(proc) == found


def test_where_none_runs_one_has_to_be_named(tmp_path: Path):
    with pytest.raises(Invalid, match="name one"):
        _running(_proc(tmp_path, p1="sh", p2="python -m http.server"))


def test_an_age_is_told_and_too_old_is_a_fault():
    assert _fresh("it", 3.4, 60.0) == "it is 3 s old"
    assert _fresh("it", -2.0, 60.0) == "it is 0 s old"
    with pytest.raises(Transient, match="it is 61 s old, more than 60 s"):
        _fresh("it", 61.0, 60.0)


def test_health_of_what_is_not_there_is_one_line_and_code_1(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEADSTART_REDIS_URL", "unix:///nowhere/s")
    for name in ("predictor", "controller", "workers"):
        result = CliRunner().invoke(build_app(["health"]), ["health", name])
        assert (result.exit_code, result.output.count("\n")) == (1, 1)
        assert result.output.startswith(f"{name}: ")


def test_health_of_an_unknown_queue_names_those_that_there_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEADSTART_REDIS_URL", "unix:///nowhere/s")
    result = CliRunner().invoke(build_app(["health"]), ["health", "workers", "--queue", "express"])
    assert isinstance(result.exception, Invalid)
    assert "realtime-fallback, batch, background, maintenance" in str(result.exception)


def test_serve_becomes_the_service_with_its_own_options(monkeypatch: pytest.MonkeyPatch):
    became = []
    monkeypatch.setattr(os, "execv", lambda path, words: became.append((path, words)))
    app = build_app(["serve"])
    assert CliRunner().invoke(app, ["serve", "workers", "--queue", "batch"]).exit_code == 0
    assert CliRunner().invoke(app, ["serve", "express"]).exit_code == 2
    assert became == [
        (sys.executable, [sys.executable, "-m", "workers", "--queue", "batch"]),
    ]
