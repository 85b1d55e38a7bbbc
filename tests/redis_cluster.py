"""A Redis Cluster of a test's own: several servers on this machine that share the slots."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from adapters.server_binary import find_binary

_START_S = 10.0
_PRIMARIES = 3


class ClusterServer:
    """One node."""

    def __init__(self, folder: Path, options: Mapping[str, str]) -> None:
        self.port, bus = _free_ports(2)
        self._folder = folder
        folder.mkdir()
        told = {
            "port": self.port, "bind": "127.0.0.1", "save": "", "appendonly": "no",
            "dir": str(folder), "logfile": str(folder / "log"), "cluster-enabled": "yes",
            "cluster-port": bus, "cluster-node-timeout": 500, "unixsocket": str(folder / "s"),
            "repl-diskless-sync-delay": 0,
            **options,
        }  # fmt: skip
        command = [str(find_binary())]
        for name, value in told.items():
            command += [f"--{name}", str(value)]
        self._bus = bus
        self._password = options.get("requirepass")
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    @contextlib.contextmanager
    def connected(self) -> Iterator[redis.Redis]:
        with redis.Redis(port=self.port, protocol=2, password=self._password) as client:
            yield client

    def ask(self, *words: object) -> Any:
        """One command to this node alone."""
        with self.connected() as client:
            return client.execute_command(*words)

    @property
    def node_id(self) -> str:
        return str(self.ask("CLUSTER MYID"), "ascii")

    def answers(self) -> bool:
        return bool(self.ask("PING"))

    def knows(self, nodes: int) -> bool:
        return len(self.ask("CLUSTER NODES")) == nodes

    def is_up(self) -> bool:
        return bool(self.ask("CLUSTER INFO")["cluster_state"] == "ok")

    def is_in_step(self) -> bool:
        return bool(self.ask("INFO", "replication")["master_link_status"] == "up")

    @property
    def socket(self) -> str:
        """Its unix socket."""
        return str(self._folder / "s")

    def meet(self, other: ClusterServer) -> None:
        self.ask("CLUSTER MEET", "127.0.0.1", other.port, other._bus)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class PrivateCluster:
    """Three servers that share the slots in even parts, and replicas of some of them."""

    def __init__(
        self, folder: Path, *, replicas_of: Sequence[int], options: Mapping[str, str]
    ) -> None:
        self.servers = [
            ClusterServer(folder / str(number), options)
            for number in range(_PRIMARIES + len(replicas_of))
        ]
        self.primaries = self.servers[:_PRIMARIES]
        self.replicas = self.servers[_PRIMARIES:]
        self._replicas_of = replicas_of

    def join(self) -> None:
        """Make one cluster of them; two seconds, which servers wait before they take writes."""
        for server in self.servers:
            _await(server.answers)
        bounds = [REDIS_CLUSTER_HASH_SLOTS * part // _PRIMARIES for part in range(_PRIMARIES + 1)]
        for server, first, end in zip(self.primaries, bounds[:-1], bounds[1:], strict=True):
            server.ask("CLUSTER ADDSLOTSRANGE", first, end - 1)
        for epoch, server in enumerate(self.servers, 1):
            server.ask("CLUSTER SET-CONFIG-EPOCH", epoch)
        for server in self.servers[1:]:
            self.servers[0].meet(server)
        for server in self.servers:
            _await(partial(server.knows, len(self.servers)))
        for replica, primary in zip(self.replicas, self._replicas_of, strict=True):
            replica.ask("CLUSTER REPLICATE", self.primaries[primary].node_id)
        for server in self.servers:
            _await(server.is_up)
        for replica in self.replicas:
            _await(replica.is_in_step)

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{server.port}" for server in self.servers)
        return f"redis+cluster://{places}"

    def owner(self, key: str) -> ClusterServer:
        """The primary that has a key's slot, as the first server that runs says."""
        slot = key_slot(key.encode())
        asked = next(server for server in self.servers if server.process.poll() is None)
        for first, last, (_, port, *_), *_ in asked.ask("CLUSTER SLOTS"):
            if first <= slot <= last:
                return next(server for server in self.servers if server.port == port)
        raise AssertionError(f"nobody has slot {slot}")

    def told_ports(self) -> set[int]:
        """The ports that servers tell of each other; news of them takes a while."""
        return {
            int(port)
            for server in self.servers
            for _, _, (_, port, *_), *_ in server.ask("CLUSTER SLOTS")
        }

    def replica_of(self, primary: ClusterServer) -> ClusterServer:
        """The one that was made its replica."""
        return self.replicas[self._replicas_of.index(self.servers.index(primary))]

    def empty(self) -> None:
        for server in self.primaries:
            with server.connected() as client:
                client.flushall()
                client.script_flush()

    def kill(self) -> None:
        for server in self.servers:
            server.kill()


@contextlib.contextmanager
def private_cluster(
    *, replicas_of: Sequence[int] = (), options: Mapping[str, str] | None = None
) -> Iterator[PrivateCluster]:
    """A cluster for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as folder:
        cluster = PrivateCluster(Path(folder), replicas_of=replicas_of, options=options or {})
        try:
            cluster.join()
            yield cluster
        finally:
            cluster.kill()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]


def _await(true: Callable[[], bool]) -> None:
    until_s = time.monotonic() + _START_S
    while time.monotonic() < until_s:
        with contextlib.suppress(redis.ConnectionError, redis.exceptions.ClusterDownError):
            if true():
                return
        time.sleep(0.02)
    raise AssertionError("the cluster did not start")
