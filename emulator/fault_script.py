"""Faults in time: armed when they are due, disarmed when they are over."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Protocol

from contracts.ports import Clock
from emulator.faults import Fault, FaultBoard
from emulator.instance import Instance


class Door(Protocol):
    """Where connections come in."""

    def close(self) -> None:
        """Refuse new connections and drop those that are open."""

    async def open(self) -> None:
        """Take connections again."""

    def drop(self, client: tuple[str, int]) -> None:
        """Close this caller's connection without another byte."""


class FaultScript:
    """Arms and disarms faults at their times. ``door`` is what refused connections shut."""

    def __init__(self, board: FaultBoard, instance: Instance, clock: Clock) -> None:
        self.door: Door | None = None
        self._board = board
        self._instance = instance
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

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

    async def _run(self, fault: Fault) -> None:
        if fault.at_s:
            await self._clock.sleep(fault.at_s)
        self._arm(fault)
        if fault.for_s is not None and fault.kind != "cooldown":
            await self._clock.sleep(fault.for_s)
            self._board.disarm(fault)
            if fault.kind == "refuse_connections" and self.door is not None:
                await self.door.open()

    def _arm(self, fault: Fault) -> None:
        if fault.kind == "backend_crash" and fault.after_tokens is None:
            self._instance.crash(fault.model or "")
        elif fault.kind == "backend_crash" and fault.times is None:
            self._board.arm(replace(fault, times=1), self._instance.now_s())
        elif fault.kind == "refuse_connections":
            self._board.arm(fault, self._instance.now_s())
            if self.door is not None:
                self.door.close()
        else:
            self._board.arm(fault, self._instance.now_s())
