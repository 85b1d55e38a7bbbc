"""How each kind of fault is begun, and ended: every one of them ends cleanly."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import redis.asyncio

from adapters.embedded_server import DEFAULT_MAX_MEMORY_BYTES
from tests.chaos.faults import OF_LINKS, OF_MODELS, Fault, Kind
from tests.chaos.site import CAPACITY_MB, SCALE, Site

Undo = Callable[[], Awaitable[None]]

_NOWHERE = ("127.0.0.1", "1")
_LAG_S = 0.5
_MANY = 3

_OF_LOCALAI: dict[Kind, dict[str, Any]] = {
    Kind.NODE_AWAY: {"kind": "restart"},
    Kind.NODE_REFUSES: {"kind": "refuse_connections"},
    Kind.MEMORY_TAKEN: {"kind": "memory", "bytes": CAPACITY_MB * 1024**2 // 3},
    Kind.LOAD_FAILS: {"kind": "load_fail", "times": 2},
    Kind.LOAD_SLOW: {"kind": "load_slow", "factor": 4.0, "extra_s": 5.0},
    Kind.LOAD_HANGS: {"kind": "load_hang"},
    Kind.COOLDOWN: {"kind": "cooldown"},
    Kind.UNLOAD_LIES: {"kind": "unload_lies"},
    Kind.UNLOAD_HANGS: {"kind": "unload_hang"},
    Kind.UNLOAD_SLOW: {"kind": "unload_slow", "extra_s": 5.0},
    Kind.UNLOAD_500: {"kind": "unload_500", "times": _MANY},
    Kind.GHOST: {"kind": "backend_crash"},
    Kind.EVICTED: {"kind": "evict"},
    Kind.ANSWER_SLOW: {"kind": "answer_slow", "extra_s": 10.0},
    Kind.ANSWER_BREAKS: {"kind": "answer_error", "times": _MANY, "after_tokens": 2},
    Kind.ANSWER_CUT: {"kind": "disconnect", "times": _MANY, "after_tokens": 2},
    Kind.ERROR_500: {"kind": "error_500", "times": _MANY},
}


class Inflictor:
    """Does faults to a site, and undoes them.

    Attributes
    ----------
    done : Counter
        Faults that were done, by label.
    missed : Counter
        Those that found nobody there, such as a kill of a process that is not up yet.
    """

    def __init__(self, site: Site) -> None:
        self.done: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self._site = site
        self._stopped: set[int] = set()
        self._fillers: set[Path] = set()
        self._filled = 0

    @asynccontextmanager
    async def during(self, fault: Fault) -> AsyncIterator[None]:
        """The fault holds inside the block."""
        began = await self._begin(fault)
        (self.done if began else self.missed)[fault.label] += 1
        try:
            yield
        finally:
            await self._end(fault)

    async def heal(self) -> None:
        """Whatever may be left of any fault is undone."""
        for pid in tuple(self._stopped):
            self._go_on(pid)
        for relay in self._site.links.values():
            relay.heal()
        self._empty_disk()
        await self._mend_redis()
        for url in self._site.emulators.values():
            await self._emulator("DELETE", url)

    async def _begin(self, fault: Fault) -> bool:
        site, kind = self._site, fault.kind
        if kind is Kind.KILL:
            site.look()
            return site.signal(fault.target, signal.SIGKILL) is not None
        if kind is Kind.STOP:
            pid = site.signal(fault.target, signal.SIGSTOP)
            if pid is not None:
                self._stopped.add(pid)
            return pid is not None
        if kind is Kind.DISK_FULL:
            return self._fill_disk()
        if kind is Kind.REDIS_OOM:
            return await self._tell_redis("CONFIG", "SET", "maxmemory", str(1024**2))
        if kind is Kind.REDIS_READONLY:
            return await self._tell_redis("REPLICAOF", *_NOWHERE)
        if kind in OF_LINKS:
            self._break(fault)
            return True
        asked = dict(_OF_LOCALAI[kind])
        if kind in OF_MODELS:
            asked["model"] = fault.model
        if fault.length_s:
            # It ends by itself, in the emulator's own time.
            asked["for_s"] = fault.length_s * SCALE
        return await self._emulator("POST", site.emulators[fault.target], asked)

    def _break(self, fault: Fault) -> None:
        relay = self._site.links[fault.target]
        match fault.kind:
            case Kind.RESET:
                relay.reset()
            case Kind.HALF_OPEN:
                relay.stall(new=True)
            case Kind.FORGOTTEN:
                relay.stall(new=False)
            case Kind.REFUSED:
                relay.refuse()
            case _:
                relay.lag_s = _LAG_S

    async def _end(self, fault: Fault) -> None:
        match fault.kind:
            case Kind.STOP:
                # A process that was stopped may have been killed and started again meanwhile.
                for pid in tuple(self._stopped):
                    if self._site.lives.get(pid) == fault.target:
                        self._go_on(pid)
            case Kind.DISK_FULL:
                self._empty_disk()
            case Kind.REDIS_OOM:
                size = str(DEFAULT_MAX_MEMORY_BYTES)
                await self._insist("CONFIG", "SET", "maxmemory", size)
            case Kind.REDIS_READONLY:
                await self._insist("REPLICAOF", "NO", "ONE")
            case kind if kind in OF_LINKS:
                self._site.links[fault.target].heal()
            case _:
                pass

    def _go_on(self, pid: int) -> None:
        self._stopped.discard(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def _fill_disk(self) -> bool:
        disk = self._site.disk
        if disk is None:
            return False
        self._filled += 1
        filler = disk / f"filler-{self._filled}"
        self._fillers.add(filler)
        room = os.statvfs(disk)
        file = os.open(filler, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        with suppress(OSError):
            os.posix_fallocate(file, 0, room.f_bavail * room.f_frsize)
        with suppress(OSError):
            while os.write(file, b"\0" * 4096):  # what was freed meanwhile, or kept back
                pass
        os.close(file)
        return True

    def _empty_disk(self) -> None:
        for filler in tuple(self._fillers):
            filler.unlink(missing_ok=True)
            self._fillers.discard(filler)

    async def _mend_redis(self) -> None:
        await self._insist("REPLICAOF", "NO", "ONE")
        await self._insist("CONFIG", "SET", "maxmemory", str(DEFAULT_MAX_MEMORY_BYTES))

    async def _insist(self, *words: str) -> None:
        """Redis may be down or stopped just now; started anew it has forgotten the fault."""
        for _ in range(60):
            if await self._tell_redis(*words):
                return
            await asyncio.sleep(0.25)

    async def _tell_redis(self, *words: str) -> bool:
        client = redis.asyncio.Redis.from_url(
            self._site.redis.url, protocol=2, socket_timeout=1.0, socket_connect_timeout=1.0
        )
        try:
            await client.execute_command(*words)
        except (redis.exceptions.RedisError, OSError):
            return False
        finally:
            with suppress(redis.exceptions.RedisError, OSError):
                await client.aclose()
        return True

    async def _emulator(self, method: str, url: str, body: object = None) -> bool:
        timeout = aiohttp.ClientTimeout(total=1.0)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.request(method, url + "/emulator/faults", data=json.dumps(body)) as answer,
            ):
                return answer.status == 200
        except (aiohttp.ClientError, OSError):
            return False
