"""Faults in time: armed when they are due, disarmed when they are over."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from contracts.ports import Clock
from emulator.faults import Fault, FaultBoard
from emulator.instance import Instance


class FaultScript:
    """Arms and disarms faults at their times. ``refuse`` closes the door for so many seconds."""

    def __init__(self, board: FaultBoard, instance: Instance, clock: Clock) -> None:
        self._board = board
        self._instance = instance
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self.refusing_until_s = 0.0

    def add(self, fault: Fault) -> None:
        """Arm it now or when it is due."""
        if fault.at_s == 0.0 and fault.for_s is None:
            self._arm(fault)
            return
        task = asyncio.get_running_loop().create_task(self._run(fault))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def clear(self) -> None:
        """Disarm everything, and forget what is not yet due."""
        for task in self._tasks:
            task.cancel()
        self._board.clear()
        self.refusing_until_s = 0.0

    async def _run(self, fault: Fault) -> None:
        if fault.at_s:
            await self._clock.sleep(fault.at_s)
        self._arm(fault)
        if fault.for_s is not None and fault.kind != "cooldown":
            await self._clock.sleep(fault.for_s)
            self._board.disarm(fault)

    def _arm(self, fault: Fault) -> None:
        if fault.kind == "backend_crash" and fault.after_tokens is None:
            self._instance.crash(fault.model or "")
        elif fault.kind == "backend_crash" and fault.times is None:
            self._board.arm(replace(fault, times=1), self._instance.now_s())
        elif fault.kind == "refuse_connections":
            self.refusing_until_s = self._clock.monotonic_s() + (fault.for_s or 0.0)
            self._board.arm(fault, self._instance.now_s())
        else:
            self._board.arm(fault, self._instance.now_s())
