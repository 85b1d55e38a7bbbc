"""``python -m emulator`` as a process: its flags, its files, its ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

MODELS = """
models:
  - {name: a, footprint_mb: 60, load_s: 3, aliases: [al]}
  - {name: b, footprint_mb: 60, load_s: 3}
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    path = tmp_path / "models.yaml"
    path.write_text(MODELS)
    return path


@contextlib.contextmanager
def emulator(*flags: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "emulator", "--port", "0", *flags],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        yield process, json.loads(first)["url"] if first else ""
    finally:
        process.kill()
        process.communicate()


def call(url: str, path: str, body: object | None = None) -> object:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url + path, data=data, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20.0) as answer:
        return json.load(answer)


def test_it_serves_at_the_time_scale_of_its_environment_and_ends_well(models, tmp_path):
    log = tmp_path / "logs" / "events.jsonl"
    faults = tmp_path / "faults.yaml"
    faults.write_text("- {kind: load_fail, model: b, message: as the file says}\n")
    with emulator(
        "--models", str(models), "--event-log", str(log), "--faults", str(faults),
        "--capacity-mb", "100", "--max-active-backends", "1", "--exact-load-times",
        HEADSTART_ENV="dev", HEADSTART_TIME_SCALE="100",
    ) as (process, url):  # fmt: skip
        loaded = call(url, "/backend/load", {"model": "a"})
        assert loaded == {"loaded": ["a"], "message": "model loaded"}
        with pytest.raises(urllib.error.HTTPError) as refused:
            call(url, "/backend/load", {"model": "b"})
        assert b"as the file says" in refused.value.read()
        state = call(url, "/emulator/state")
        assert isinstance(state, dict)
        assert state["time_scale"] == 100.0
        assert state["capacity_bytes"] == 100 * 1024**2
        assert state["model_limit"] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10.0) == 0
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [event["kind"] for event in events] == [
        "load_started", "load_ended", "unloaded", "load_started", "load_failed",
    ]  # fmt: skip
    assert events[1]["at_s"] - events[0]["at_s"] == pytest.approx(3.0, abs=1e-3)
    assert [event["seq"] for event in events] == [1, 2, 3, 4, 5]


def test_a_stream_that_runs_at_a_signal_ends_well(models):
    with emulator("--models", str(models), HEADSTART_ENV="dev", HEADSTART_TIME_SCALE="10") as (
        process,
        url,
    ):
        call(url, "/backend/load", {"model": "a"})
        address = url.removeprefix("http://").split(":")
        body = b'{"model":"a","stream":true,"max_tokens":4}'
        with socket.create_connection((address[0], int(address[1])), timeout=20.0) as connection:
            connection.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                b"X-Emulator-Service-S: 10\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            got = connection.recv(65536)  # the first token is there
            process.send_signal(signal.SIGTERM)
            while chunk := connection.recv(65536):
                got += chunk
        assert got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert process.wait(timeout=10.0) == 0


def says(*flags: str, **environment: str) -> str:
    with emulator(*flags, **environment) as (process, _):
        assert process.wait(timeout=20.0) == 2
        assert process.stderr is not None
        return process.stderr.read()


def test_what_is_wrong_is_said_in_one_line(models, tmp_path):
    missing = says("--models", str(tmp_path / "none.yaml"))
    assert "none.yaml: no such file" in missing
    assert missing.count("\n") == 1
    assert "production" in says("--models", str(models), HEADSTART_TIME_SCALE="30")
    empty = tmp_path / "faults.yaml"
    empty.write_text("kind: x")
    assert "expected a list" in says("--models", str(models), "--faults", str(empty))
    empty.write_text("- {kind: x}")
    assert "must be one of" in says("--models", str(models), "--faults", str(empty))


def test_a_busy_port_is_said_in_one_line(models):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        line = says("--models", str(models), "--port", port)
    assert line == f"emulator: cannot listen on 127.0.0.1:{port}: Address already in use\n"
