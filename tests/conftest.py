"""What holds for every test: a clean environment, and sockets only where a tier needs them."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import pytest_socket
import redis
from hypothesis import settings

from adapters.server_binary import find_binary
from tests.redis_cluster import PrivateCluster, private_cluster

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True)
settings.register_profile("nightly", max_examples=5000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

_LEFT_OUT = pytest.StashKey[int]()
_SOCKETLESS_TIERS = frozenset({"unit", "property", "golden", "fuzz"})


def pytest_runtest_setup(item: pytest.Item) -> None:
    tier = Path(item.path).relative_to(Path(__file__).parent).parts[0]
    if tier in _SOCKETLESS_TIERS:
        pytest_socket.disable_socket(allow_unix_socket=True)
    else:
        pytest_socket.enable_socket()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests against a real LocalAI run where one is named, and nowhere else."""
    left_out = [item for item in items if _names_nobody(item.get_closest_marker("localai"))]
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
        config.stash[_LEFT_OUT] = len(left_out)


def _names_nobody(localai: pytest.Mark | None) -> bool:
    variable = localai.args[0] if localai is not None and localai.args else "LOCALAI_URL"
    return localai is not None and not os.environ.get(variable)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for what was left out, and how it is run."""
    count = terminalreporter.config.stash.get(_LEFT_OUT, 0)
    if count:
        terminalreporter.write_line(
            f"{count} tests against a real LocalAI not run: make test-localai LOCALAI_URL=http://…"
        )


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("HEADSTART_", "LOCALAI_")) or name == "REDIS_URL":
            monkeypatch.delenv(name)


class PrivateServer:
    """A Redis-compatible server on a unix socket, without persistence, to use and to harm."""

    def __init__(self, folder: Path, options: Mapping[str, str]) -> None:
        self.url = f"unix://{folder / 's'}"
        self._command = [str(find_binary())]
        defaults = {"port": "0", "unixsocket": str(folder / "s"), "save": "", "appendonly": "no"}
        places = {"dir": str(folder), "logfile": str(folder / "log")}
        for name, value in (defaults | places | dict(options)).items():
            self._command += [f"--{name}", value]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        for _ in range(500):
            if self._answers():
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.01)
        self.kill()
        raise AssertionError("the server did not start")

    def _answers(self) -> bool:
        """Whether it says anything at all, be it that it wants a password."""
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            probe.connect(self.url.removeprefix("unix://"))
            probe.sendall(b"PING\r\n")
            return probe.recv(1) != b""
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def _private_server(options: Mapping[str, str]) -> Iterator[PrivateServer]:
    # Unix socket paths are short (108 bytes), pytest's own folders are not.
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as folder:
        server = PrivateServer(Path(folder), options)
        try:
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def redis_server_url() -> Iterator[str]:
    """A server of this test session's own; nobody else's is touched."""
    with _private_server({}) as server:
        yield server.url


@pytest.fixture
def redis_url(redis_server_url: str) -> str:
    """The session's server, emptied for this test."""
    with redis.Redis.from_url(redis_server_url, protocol=2) as client:
        client.flushall()
        client.script_flush()
    return redis_server_url


@pytest.fixture(scope="session")
def redis_cluster_server() -> Iterator[PrivateCluster]:
    """Three nodes of this test session's own."""
    with private_cluster() as cluster:
        yield cluster


@pytest.fixture
def redis_cluster(redis_cluster_server: PrivateCluster) -> PrivateCluster:
    """The session's cluster, emptied for this test."""
    redis_cluster_server.empty()
    return redis_cluster_server


@pytest.fixture
def start_redis() -> Iterator[Callable[..., PrivateServer]]:
    """Start servers of a test's own, with options by name, that it may kill and start again."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(_private_server(options))
