"""What holds for every test: a clean environment, and sockets only where a tier needs them."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_socket
import redis
from hypothesis import settings

from adapters.server_binary import find_binary

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True)
settings.register_profile("nightly", max_examples=5000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

_SOCKETLESS_TIERS = frozenset({"unit", "property", "golden"})


def pytest_runtest_setup(item: pytest.Item) -> None:
    tier = Path(item.path).relative_to(Path(__file__).parent).parts[0]
    if tier in _SOCKETLESS_TIERS:
        pytest_socket.disable_socket(allow_unix_socket=True)
    else:
        pytest_socket.enable_socket()


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("HEADSTART_", "LOCALAI_")) or name == "REDIS_URL":
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def redis_server_url() -> Iterator[str]:
    """A server of this test session's own, without persistence; nobody else's is touched."""
    binary = find_binary()
    # Unix socket paths are short (108 bytes), pytest's folders are not.
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as folder:
        socket_path = Path(folder, "s")
        options = {
            "port": "0",
            "unixsocket": str(socket_path),
            "save": "",
            "appendonly": "no",
            "dir": folder,
            "logfile": str(Path(folder, "log")),
        }
        process = subprocess.Popen(
            [
                str(binary),
                *itertools.chain(*((f"--{key}", value) for key, value in options.items())),
            ],
            stdout=subprocess.DEVNULL,
        )
        try:
            _wait_for_server(process, socket_path)
            yield f"unix://{socket_path}"
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def redis_url(redis_server_url: str) -> str:
    """The session's server, emptied for this test."""
    with redis.Redis.from_url(redis_server_url, protocol=2) as client:
        client.flushall()
        client.script_flush()
    return redis_server_url


def _wait_for_server(process: subprocess.Popen[bytes], socket_path: Path) -> None:
    for _ in range(500):
        with contextlib.suppress(redis.ConnectionError):
            with redis.Redis(unix_socket_path=str(socket_path), protocol=2) as client:
                client.ping()
            return
        assert process.poll() is None, "the server ended at its start"
        time.sleep(0.01)
    raise AssertionError("the server did not answer within 5 s")
