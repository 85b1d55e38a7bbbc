"""One look at a stack: its processes, its Redis, its folder, its metrics."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import psutil
import redis.asyncio

from adapters.redis_client import mapped_errors
from cli.services import SERVICES
from cli.stack import EMULATOR, REDIS, Stack

Sample = dict[str, float]

PROCESSES = (EMULATOR, *SERVICES)
_ONE = re.compile(r"[0-9a-f-]{16,}|\d+")


class Sampler:
    """Looks at everything that could grow.

    Attributes
    ----------
    restarts : Counter
        How often each process was found to be another one than before.
    """

    def __init__(
        self,
        stack: Stack,
        store: redis.asyncio.Redis,
        session: aiohttp.ClientSession,
        *,
        store_pid: int | None,
    ) -> None:
        self._store_pid = store_pid
        self._stack = stack
        self._store = store
        self._session = session
        self._pids: dict[str, int] = {}
        self.restarts: Counter[str] = Counter()

    async def sample(self) -> Sample:
        """Every figure by its name; what cannot be seen at this moment is left out."""
        found: Sample = {}
        pids = {name: pid for name in PROCESSES if (pid := self._stack.pid(name)) is not None}
        if self._store_pid is not None:
            pids[REDIS] = self._store_pid
        for name, pid in pids.items():
            self.restarts[name] += self._pids.get(name, pid) != pid
        self._pids |= pids
        found |= await asyncio.to_thread(_of_processes, pids)
        found |= await asyncio.to_thread(_of_folder, self._stack.data_dir)
        # Our own way to Redis: redis-py alone may lose that this task is cancelled.
        with mapped_errors("look at keys"):
            found |= await of_store(self._store)
        for name, url in (
            ("gateway", self._stack.gateway_url + "/headstart/metrics"),
            ("control", self._stack.control_url + "/metrics"),
        ):
            async with self._session.get(url) as answer:
                found[f"{name}.metric_lines"] = float((await answer.text()).count("\n"))
        return found


async def of_store(store: redis.asyncio.Redis) -> Sample:
    """Memory, clients, and each family of keys: how many there are and what they take."""
    info = await store.info()
    found: Sample = {
        "redis.used_memory": float(info["used_memory"]),
        "redis.dataset": float(info["used_memory_dataset"]),
        "redis.clients": float(info["connected_clients"]),
    }
    keys = [key async for key in store.scan_iter(count=1000)]
    streams = {key async for key in store.scan_iter(count=1000, _type="stream")}
    pipeline = store.pipeline(transaction=False)
    for key in keys:
        pipeline.memory_usage(key)
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for key, size in zip(keys, await pipeline.execute(), strict=True):
        prefix = prefix_of(key.decode(errors="replace"))
        counts[prefix] += 1
        sizes[prefix] += size or 0
    found |= {f"redis.keys.{prefix}": float(count) for prefix, count in counts.items()}
    found |= {f"redis.bytes.{prefix}": float(size) for prefix, size in sizes.items()}
    for key in streams:
        prefix = prefix_of(key.decode())
        found[f"redis.stream.{prefix}"] = float(await store.xlen(key))
    return found


def prefix_of(key: str) -> str:
    """The family of a key: its first two parts, without ids and numbers."""
    parts = [part for part in key.split(":")[:2] if not _ONE.fullmatch(part)]
    return ":".join(parts)


def of_process(pid: int) -> Sample:
    """What one process holds; empty when it is gone."""
    process = psutil.Process(pid)
    with process.oneshot():
        memory = process.memory_full_info()
        return {
            "rss_bytes": float(memory.rss),
            "uss_bytes": float(memory.uss),
            "fds": float(process.num_fds()),
            "threads": float(process.num_threads()),
        }


def _of_processes(pids: dict[str, int]) -> Sample:
    found: Sample = {}
    for name, pid in pids.items():
        try:
            found |= {f"{name}.{what}": value for what, value in of_process(pid).items()}
            for kind, child in _children(pid):
                for what, value in of_process(child).items():
                    found[f"{name}-{kind}.{what}"] = value
        except psutil.Error:
            continue
    return found


def _children(pid: int) -> Iterator[tuple[str, int]]:
    """Its lasting children by what they are: those that say a queue on their command line."""
    for child in psutil.Process(pid).children():
        try:
            words = child.cmdline()
        except psutil.Error:
            continue
        if "--queue" in words[:-1]:
            yield words[words.index("--queue") + 1], child.pid


def _of_folder(folder: Path) -> Sample:
    found: Counter[str] = Counter(
        {"disk.redis_bytes": 0, "disk.logs_bytes": 0, "disk.files_bytes": 0, "disk.other_bytes": 0}
    )
    for path in folder.rglob("*"):
        try:
            size = path.lstat().st_size if path.is_file() else 0
        except OSError:
            continue
        part = path.relative_to(folder).parts[0]
        name = f"disk.{part}_bytes"
        found[name if name in found else "disk.other_bytes"] += size
    return {name: float(size) for name, size in found.items()}
