"""The Redis-compatible server of a single machine: found, started, kept running, shared."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from adapters.append_only_file import mend
from adapters.file_lock import FileLock
from adapters.server_binary import find_binary
from adapters.server_folder import ServerFolder
from adapters.server_process import answering_run_id, end_process, is_alive, start_process
from contracts.errors import HeadstartError, Permanent, Transient

DEFAULT_MAX_MEMORY_BYTES = 256 * 1024**2

_ADOPT_S = 15.0
_WATCH_S = 1.0
_FIRST_PAUSE_S = 0.2
_LAST_PAUSE_S = 5.0
_STEADY_S = 30.0
_ORPHAN_S = 5.0
_RELEASE_S = 30.0
_POLL_S = 0.02

_log = structlog.get_logger()


@asynccontextmanager
async def provided_server(url: str | None, data_dir: Path) -> AsyncIterator[str]:
    """The url of the server to use: the configured one, else an embedded one while the block runs.

    Raises
    ------
    Invalid, Permanent, Transient
        As ``EmbeddedServer.start``.
    """
    if url is not None:
        yield url
        return
    async with EmbeddedServer(data_dir) as server:
        yield server.url


class EmbeddedServer:
    """A server whose data is in ``data_dir/redis``, shared by all processes that name it.

    The first process owns it: starts it, restarts it when it dies, ends it. Others adopt it,
    and one of them takes over when the owner is gone. Data stays (append-only file, written
    to disk every second). It listens on a unix socket alone.

    Times here are real, however fast the stack's clock runs: they are a server's, not ours.

    Parameters
    ----------
    max_memory_bytes : int
        At this bound writes are refused (``noeviction``), nothing is dropped silently.
    binary : Path, optional
        The server's program. Default: ``find_binary()``, asked for when it is started.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        max_memory_bytes: int = DEFAULT_MAX_MEMORY_BYTES,
        binary: Path | None = None,
    ) -> None:
        self._folder = ServerFolder.prepare(data_dir)
        self._max_memory_bytes = max_memory_bytes
        self._binary = binary
        self._owner_lock = FileLock(self._folder.owner_lock)
        self._data_lock = FileLock(self._folder.data_lock)
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._allowed = asyncio.Event()
        self._allowed.set()
        self.restarts = 0

    @property
    def url(self) -> str:
        """What clients connect to; the same before and after restarts and takeovers."""
        return self._folder.url

    @property
    def owned(self) -> bool:
        """Whether this process is the one that keeps the server running."""
        return self._owner_lock.held

    @property
    def pid(self) -> int | None:
        """The server's process, where this process owns it."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start the server, or adopt the one that runs.

        Raises
        ------
        Invalid
            No server program, or a folder that cannot be used; says what to do.
        Permanent
            It does not start; with the last line of its log.
        Transient
            Another process owns it, and it does not answer.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + _ADOPT_S
        while True:
            if self._owner_lock.take():
                await self._become_owner()
                self._watch = asyncio.create_task(self._keep_running())
                return
            if await self._is_answering():
                _log.info("redis_server_adopted", url=self.url)
                self._watch = asyncio.create_task(self._await_ownership())
                return
            if loop.time() > end_s:
                raise Transient(
                    f"another process owns {self._folder.folder}, but its server does not answer"
                )
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """End the server if it is ours; an adopted one runs on."""
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
            self._watch = None
        if self._process is not None:
            await end_process(self._process)
            self._process = None
            self._folder.forget_running()
            _log.info("redis_server_stopped")
        self._data_lock.release()
        self._owner_lock.release()

    async def hold(self) -> None:
        """Kill the server and keep it down until ``release``: an outage, for tests."""
        self._allowed.clear()
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def release(self) -> None:
        """Start the server again after ``hold``, and wait until it answers."""
        self._allowed.set()
        async with asyncio.timeout(_RELEASE_S):
            while not await self._is_answering():  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(_POLL_S)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _become_owner(self) -> None:
        try:
            await self._take_data_lock()
            await self._start_process()
        except BaseException:
            self._data_lock.release()
            self._owner_lock.release()
            raise
        _log.info("redis_server_started", url=self.url, pid=self.pid)

    async def _start_process(self) -> None:
        try:
            self._process = await self._start_once()
        except Permanent as error:
            if not await asyncio.to_thread(self._is_mended):
                raise
            _log.warning("redis_data_mended", why=str(error), kept=".holed")
            self._process = await self._start_once()

    async def _start_once(self) -> asyncio.subprocess.Process:
        return await start_process(
            self._binary or find_binary(),
            self._folder,
            lock_fd=self._data_lock.fd,
            max_memory_bytes=self._max_memory_bytes,
        )

    def _is_mended(self) -> bool:
        """Whether a full disk had left a hole in the data, which is gone now."""
        try:
            return mend(self._folder.folder) > 0
        except OSError as error:
            _log.warning("redis_data_not_mended", error=str(error))
            return False

    async def _take_data_lock(self) -> None:
        """Wait for the server of an owner that is gone to end; help it along when it does not."""
        for chosen in (None, signal.SIGTERM, signal.SIGKILL):
            left = self._folder.running()
            if chosen is not None and left is not None and is_alive(left):
                _log.warning("redis_server_orphan_ended", pid=left.pid, signal=chosen.name)
                os.kill(left.pid, chosen)
            loop = asyncio.get_running_loop()
            end_s = loop.time() + _ORPHAN_S
            while loop.time() < end_s:
                if self._data_lock.take():
                    return
                await asyncio.sleep(0.02)
        raise Permanent(f"the data in {self._folder.folder} is in use by another server")

    async def _is_answering(self) -> bool:
        running = self._folder.running()
        try:
            return running is not None and await answering_run_id(self._folder) == running.run_id
        except Transient:
            return False

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = _FIRST_PAUSE_S
        started_s = loop.time()
        failed = False
        while True:
            if self._process is not None:
                code = await self._process.wait()
                if loop.time() - started_s > _STEADY_S:
                    pause_s = _FIRST_PAUSE_S
                _log.warning("redis_server_ended", code=code, restart_in_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LAST_PAUSE_S)
            await self._allowed.wait()
            self._process = None
            started_s = loop.time()
            self.restarts += 1
            try:
                await self._start_process()
            except HeadstartError as error:
                if not failed:
                    _log.warning("redis_server_restart_failed", error=str(error))
                failed = True
            else:
                failed = False
                _log.info("redis_server_restarted", pid=self.pid)

    async def _await_ownership(self) -> None:
        """Take over when the owner is gone, so that those who adopted its server have one again."""
        failed = False
        while True:
            await asyncio.sleep(_WATCH_S)
            if not self._owner_lock.take():
                continue
            try:
                await self._become_owner()
            except HeadstartError as error:
                if not failed:
                    _log.warning("redis_server_takeover_failed", error=str(error))
                failed = True
                continue
            await self._keep_running()
