"""``python -m api.gateway`` as a process of a test's own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp

ROOT = Path(__file__).parents[1]
PATIENCE_S = 30.0


class GatewayProcess:
    """One process, and all that it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.said = ""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        while data := await self.process.stderr.read(65_536):
            self.said += data.decode("utf-8", "replace")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def is_up(self) -> None:
        """Wait until it answers."""
        async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(self.url + "/headstart/healthz") as answer:
                        assert answer.status == 200
                        return
                except aiohttp.ClientConnectionError:
                    assert self.process.returncode is None, self.said
                    await asyncio.sleep(0.05)

    async def says(self, word: str, times: int = 1) -> None:
        """Wait until it has said something so often."""
        async with asyncio.timeout(PATIENCE_S):
            while self.said.count(word) < times:  # noqa: ASYNC110 - another process writes
                await asyncio.sleep(0.02)

    async def ends(self) -> int:
        """Wait for its end; the exit code."""
        code = await asyncio.wait_for(self.process.wait(), PATIENCE_S)
        await self._reading
        return code

    async def close(self) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
        await self._reading


@contextlib.asynccontextmanager
async def gateway_process(
    home: Path, environment: Mapping[str, str], *, stdin: int = asyncio.subprocess.DEVNULL
) -> AsyncIterator[GatewayProcess]:
    """Start one on a free port; it is up inside the block, and gone after it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    plain = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "HEADSTART_GATEWAY_PORT": str(port),
        "PYTHONPATH": str(ROOT),
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "api.gateway",
        cwd=home,
        env=plain | dict(environment),
        stdin=stdin,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    running = GatewayProcess(process, port)
    try:
        await running.is_up()
        yield running
    finally:
        await running.close()
