"""Faults in time: armed when they are due, disarmed when they are over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Protocol

from contracts.ports import Clock
from emulator.faults import Fault, FaultBoard
from emulator.instance import Instance, Refusal
from simulator.localai_effects import StopCause


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
        self._begin(self._run(fault))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def clear(self) -> None:
        """Disarm everything, and forget what is not yet due."""
        for task in self._tasks:
            task.cancel()
        self._board.clear()
        self._instance.look()

    async def _run(self, fault: Fault) -> None:
        if fault.at_s:
            await self._clock.sleep(fault.at_s)
        self._arm(fault)
        if fault.for_s is not None and fault.kind != "cooldown":
            await self._clock.sleep(fault.for_s)
            self._board.disarm(fault)
            self._instance.look()
            if fault.kind in ("refuse_connections", "restart") and self.door is not None:
                await self.door.open()

    async def _evict(self, model: str) -> None:
        """LocalAI stops an idle model by itself, as its limit would have it."""
        with contextlib.suppress(Refusal):
            await self._instance.stop(model, StopCause.LIMIT)

    async def _restart(self, *, is_back_at_once: bool) -> None:
        """Everybody is cut off, and everything is forgotten."""
        if self.door is not None:
            self.door.close()
        self._instance.restart()
        if self.door is not None and is_back_at_once:
            await self.door.open()

    def _arm(self, fault: Fault) -> None:
        if fault.kind == "backend_crash" and fault.after_tokens is None:
            self._instance.crash(fault.model or "")
        elif fault.kind == "evict":
            self._begin(self._evict(fault.model or ""))
        elif fault.kind == "restart":
            self._begin(self._restart(is_back_at_once=fault.for_s is None))
        elif fault.kind == "backend_crash" and fault.times is None:
            self._board.arm(replace(fault, times=1), self._instance.now_s())
        elif fault.kind == "refuse_connections":
            self._board.arm(fault, self._instance.now_s())
            if self.door is not None:
                self.door.close()
        else:
            self._board.arm(fault, self._instance.now_s())
