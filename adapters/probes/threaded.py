"""A probe read in a thread of its own: a driver that hangs holds up nobody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

from contracts.ports import Probe
from contracts.readings import ProbeReading


def in_thread(probe: Probe) -> Callable[[float], Awaitable[ProbeReading]]:
    """Reads ``probe``, one look at a time; its thread does not keep the process from ending.

    Whoever gives up waiting and asks again waits for the look that hangs, and gets its reading.
    """
    running: asyncio.Future[ProbeReading] | None = None

    async def read(now_s: float) -> ProbeReading:
        nonlocal running
        if running is None or running.done():
            running = _start(probe, now_s)
        return await asyncio.shield(running)

    return read


def _start(probe: Probe, now_s: float) -> asyncio.Future[ProbeReading]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ProbeReading] = loop.create_future()

    def tell(reading: ProbeReading | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        elif reading is not None:
            future.set_result(reading)

    def look() -> None:
        reading: ProbeReading | None = None
        fault: BaseException | None = None
        try:
            reading = probe.read(now_s)
        except BaseException as error:  # noqa: BLE001 - it is raised where the look is awaited
            fault = error
        try:
            loop.call_soon_threadsafe(tell, reading, fault)
        except RuntimeError:
            return  # the loop has ended meanwhile: nobody waits for it

    threading.Thread(target=look, name="probe", daemon=True).start()
    return future
