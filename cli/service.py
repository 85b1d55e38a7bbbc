"""One child process that is kept running: started, watched, started again, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from adapters.child_process import follows_parent
from cli.output import Tail, WriteLine, relay_pipe
from cli.readiness import Ready, until_ready
from contracts.errors import Invalid

BAD_CONFIGURATION = 2
"""Exit code of a process whose configuration or port cannot work: not tried again at start."""

_DRAIN_S = 0.5
_KILL_S = 5.0
_SETTLED_S = 10.0

_log = structlog.get_logger("headstart.up")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between restarts, in real seconds: doubling, and short again after a steady run."""

    first_s: float = 0.2
    last_s: float = 5.0
    steady_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """What to run.

    Attributes
    ----------
    env : mapping
        The whole environment of the process.
    ready :
        A url that answers 200, a coroutine function that is asked with the pid, or None: at once.
    restart : bool
        Whether it is started again when it ends by itself.
    stop_s : float
        Real seconds that it has to end in after SIGTERM; then it is killed.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    ready: Ready = None
    restart: bool = True
    stop_s: float = 6.0
    cwd: Path | None = None


class Service:
    """Runs one ``ServiceSpec``. Times are real: they are those of processes, not of our clock."""

    def __init__(self, spec: ServiceSpec, writers: tuple[WriteLine, ...], backoff: Backoff) -> None:
        self.spec = spec
        self.restarts = 0
        self.exit_code: int | None = None
        """How its last process ended; negative: by that signal."""
        self.ready = asyncio.Event()
        self._backoff = backoff
        self._tail = Tail()
        self._writers = (*writers, self._tail.write)
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self._was_ready = False
        self._allowed = asyncio.Event()
        self._allowed.set()
        self._ended = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The process's number while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    @property
    def last_line(self) -> str:
        """The last thing that it said."""
        return self._tail.last

    async def run(self) -> int:
        """Keep it running until ``stop``; the last exit code.

        Raises
        ------
        Invalid
            It ended with exit code 2 before it was ever ready; with what it said last.
        """
        pause_s = self._backoff.first_s
        loop = asyncio.get_running_loop()
        while True:
            started_s = loop.time()
            code = self.exit_code = await self._run_once()
            if self._stopping.is_set():
                return code
            if code == BAD_CONFIGURATION and not self._was_ready:
                raise Invalid(self.last_line or f"{self.spec.name} ended with exit code {code}")
            if not self.spec.restart:
                _log.info("service_ended", service=self.spec.name, code=code)
                return code
            if self._allowed.is_set():
                if loop.time() - started_s > self._backoff.steady_s:
                    pause_s = self._backoff.first_s
                _log.warning(
                    "service_ended",
                    service=self.spec.name,
                    code=code,
                    said=self.last_line[:300] if code > 0 else None,
                    restart_in_s=pause_s,
                )
                await self._pause(pause_s)
                pause_s = min(pause_s * 2, self._backoff.last_s)
            await self._allowed.wait()
            if self._stopping.is_set():
                return code
            self.restarts += 1

    async def hold(self) -> None:
        """Kill it and keep it down until ``release``: an outage, for tests."""
        self._allowed.clear()
        self.kill()
        await self._ended.wait()

    def release(self) -> None:
        """Start it again after ``hold``."""
        self._allowed.set()

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL for it and all that it started and left behind."""
        self._stopping.set()
        self._allowed.set()
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            self.send_signal(signal.SIGTERM)
            if not await self._has_ended(self.spec.stop_s):
                _log.warning("service_killed", service=self.spec.name, after_s=self.spec.stop_s)
        self.kill()
        await self._has_ended(_KILL_S)

    def send_signal(self, chosen: signal.Signals) -> None:
        """Send a signal to the process itself, not to what it started."""
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, chosen)

    def kill(self) -> None:
        """SIGKILL to it and to what it started, which may outlive it."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _run_once(self) -> int:
        self._ended.clear()
        process, relaying = await self._spawn()
        watching = asyncio.create_task(self._watch_readiness(process.pid))
        try:
            code = await process.wait()
            with contextlib.suppress(TimeoutError):
                # Something that it started may keep the pipe open.
                async with asyncio.timeout(_DRAIN_S):
                    await asyncio.shield(relaying)
        finally:
            for task in (relaying, watching):
                task.cancel()
            await asyncio.gather(relaying, watching, return_exceptions=True)
            self.kill()
            self.ready.clear()
            self._ended.set()
        return code

    async def _spawn(self) -> tuple[asyncio.subprocess.Process, asyncio.Task[None]]:
        # A pipe of our own: asyncio's would make wait() wait for whoever else holds its end.
        read_end, write_end = os.pipe()
        relaying = asyncio.create_task(relay_pipe(read_end, self._writers))
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *self.spec.argv,
                env=dict(self.spec.env),
                cwd=self.spec.cwd,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                # A group of its own: an interrupt at the terminal reaches us alone, and what a
                # dead process left behind can be found.
                start_new_session=True,
                preexec_fn=follows_parent(signal.SIGTERM),
            )
        finally:
            os.close(write_end)
        return process, relaying

    async def _watch_readiness(self, pid: int) -> None:
        await until_ready(self.spec.ready, pid)
        self.ready.set()
        if self.spec.ready is None:
            # Nothing tells when it can serve, so its start is over when it has run for a while.
            await asyncio.sleep(_SETTLED_S)
        self._was_ready = True

    async def _pause(self, pause_s: float) -> None:
        """Wait, but no longer than until ``stop``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._stopping.wait()

    async def _has_ended(self, limit_s: float) -> bool:
        try:
            async with asyncio.timeout(limit_s):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True
