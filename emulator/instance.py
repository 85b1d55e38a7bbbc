"""The state machine in real time: callers become coroutines, due times become sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import assert_never

from contracts.errors import HeadstartError
from contracts.ports import Clock
from emulator.events import EventLog
from simulator.localai import LocalAi
from simulator.localai_effects import (
    CallerId,
    CallKind,
    Done,
    Effect,
    Record,
    RecordKind,
    RefusalKind,
    Refused,
    Started,
    StopCause,
)

FLUSH_S = 0.5
"""The event log's file is at most this much (real time) behind."""

MAX_REQUEST_IDS = 20_000
"""Names of callers kept for the log; the oldest are forgotten first."""


class Refusal(HeadstartError):
    """LocalAI did not do what was asked; ``kind`` says why."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.message or refused.kind)
        self.kind = refused.kind
        self.message = refused.message
        self.retry_after_s = refused.retry_after_s


class Slot:
    """One request that a model's backend works on."""

    def __init__(self, clock: Clock, *, cold: bool) -> None:
        self.cold = cold
        self.model = ""
        self._clock = clock
        self._broken = asyncio.Event()
        self._started_s = clock.monotonic_s()

    @property
    def elapsed_s(self) -> float:
        """Time since the slot was taken."""
        return self._clock.monotonic_s() - self._started_s

    async def until(self, elapsed_s: float) -> None:
        """Work until so much time has passed; Refusal when the backend dies meanwhile."""
        if self._broken.is_set():
            raise Refusal(Refused(caller=0, kind=RefusalKind.BROKEN))
        left_s = elapsed_s - self.elapsed_s
        if left_s <= 0:
            return
        try:
            async with self._clock.timeout(left_s):
                await self._broken.wait()
        except TimeoutError:
            return
        raise Refusal(Refused(caller=0, kind=RefusalKind.BROKEN))

    def break_off(self) -> None:
        """The backend's process is gone."""
        self._broken.set()


class Instance:
    """One emulated LocalAI process. ``run`` must be running while it is used."""

    def __init__(self, machine: LocalAi, clock: Clock, events: EventLog) -> None:
        self.machine = machine
        self._clock = clock
        self._events = events
        self._callers = count(1)
        self._answers: dict[CallerId, asyncio.Future[Started | Done]] = {}
        self._request_ids: dict[CallerId, str] = {}
        self._slots: dict[CallerId, Slot] = {}
        self._changed = asyncio.Event()
        self._planned_s: float | None = None
        self._frozen = False
        self._touched: set[str] = set()
        self.began_at_s = clock.now_s()
        # Records carry epoch seconds; the machine runs on a clock that never steps.
        self._epoch_s = clock.now_s() - clock.monotonic_s()

    def now_s(self) -> float:
        """The machine's time."""
        return self._clock.monotonic_s()

    async def run(self) -> None:
        """Take the machine's own steps when they are due, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._flush_log())
            while True:
                self._changed.clear()
                self._planned_s = self.machine.next_wake_s()
                if self._planned_s is None:
                    await self._changed.wait()
                    continue
                try:
                    async with self._clock.timeout(self._planned_s - self.now_s()):
                        await self._changed.wait()
                except TimeoutError:
                    self.apply(self.machine.advance(self.now_s()))

    @asynccontextmanager
    async def serving(self, model: str, request_id: str) -> AsyncIterator[Slot]:
        """Hold a slot of the model, loading it if need be; Refusal when there is none.

        Cancelling it is the caller's leaving, as LocalAI sees it.
        """
        caller = self._new_caller(request_id)
        try:
            started = await self._ask(caller, CallKind.INFER, model)
            assert isinstance(started, Started)
            slot = self._slots[caller]
            slot.model = model
            try:
                yield slot
            except asyncio.CancelledError:
                self._end(caller, left=True)
                raise
            except BaseException:
                self._end(caller, left=False)
                raise
            self._end(caller, left=False)
        finally:
            self._slots.pop(caller, None)

    async def load(self, model: str, request_id: str) -> None:
        """Load the model; Refusal when that fails. Cancelling it kills the load."""
        await self._ask(self._new_caller(request_id), CallKind.LOAD, model)

    async def is_busy(self, model: str) -> bool:
        """Whether a loaded model works; Refusal when it is not loaded."""
        done = await self._ask(self._new_caller(None), CallKind.MONITOR, model)
        return isinstance(done, Done) and done.busy

    async def stop(self, model: str, cause: StopCause = StopCause.SHUTDOWN) -> None:
        """Stop the model; Refusal when it is not loaded or stays busy."""
        await self._ask(self._new_caller(None), CallKind.STOP, model, cause)

    def busy(self) -> dict[str, float]:
        """For how long each model that works has worked on its oldest request, in seconds."""
        longest: dict[str, float] = {}
        for slot in self._slots.values():
            if slot.model:
                longest[slot.model] = max(slot.elapsed_s, longest.get(slot.model, 0.0))
        return longest

    def look(self) -> None:
        """Something outside of a call was changed, so that other steps may be due."""
        self.apply(self.machine.resume(self.now_s()))

    def freeze(self) -> None:
        """Inference, loads and stops hang from here on, as LocalAI's settings can do."""
        self._frozen = True

    def crash(self, model: str) -> None:
        """The model's process dies now."""
        self.apply(self.machine.crash(model, self.now_s()))

    def restart(self) -> None:
        """The process ends and begins anew."""
        self.apply(self.machine.restart(self.now_s()))
        self._frozen = False
        self.began_at_s = self._clock.now_s()

    def is_touched(self, model: str) -> bool:
        """Whether it has answered anything since it was loaded."""
        return model in self._touched

    def apply(self, effects: tuple[Effect, ...]) -> None:
        """Answer callers and write the log."""
        for effect in effects:
            match effect:
                case Record():
                    self._log(effect)
                case Started():
                    self._slots[effect.caller] = Slot(self._clock, cold=effect.cold)
                    self._resolve(effect.caller, effect)
                case Done():
                    self._resolve(effect.caller, effect)
                case Refused():
                    slot = self._slots.pop(effect.caller, None)
                    if slot is not None:
                        slot.break_off()
                    self._resolve(effect.caller, effect)
                case _:
                    assert_never(effect)
        if self.machine.next_wake_s() != self._planned_s:
            self._changed.set()

    def _end(self, caller: CallerId, *, left: bool) -> None:
        """The request is over; nothing to say when its backend died under it."""
        if caller not in self._slots:
            return
        if not left:
            self._touched.add(self._slots[caller].model)
        end = self.machine.leave if left else self.machine.finish
        self.apply(end(caller, self.now_s()))

    def _new_caller(self, request_id: str | None) -> CallerId:
        caller = next(self._callers)
        if request_id is not None:
            # Not dropped with the call: a caller that left can still lead a load that is logged.
            self._request_ids[caller] = request_id
            if len(self._request_ids) > MAX_REQUEST_IDS:
                del self._request_ids[next(iter(self._request_ids))]
        return caller

    async def _ask(
        self,
        caller: CallerId,
        kind: CallKind,
        model: str,
        cause: StopCause = StopCause.SHUTDOWN,
    ) -> Started | Done:
        if self._frozen and kind is not CallKind.MONITOR:
            await asyncio.Event().wait()
        now_s = self.now_s()
        answer: asyncio.Future[Started | Done] = asyncio.get_running_loop().create_future()
        self._answers[caller] = answer
        match kind:
            case CallKind.INFER:
                effects = self.machine.infer(caller, model, now_s)
            case CallKind.LOAD:
                effects = self.machine.load(caller, model, now_s)
            case CallKind.MONITOR:
                effects = self.machine.monitor(caller, model, now_s)
            case CallKind.STOP:
                effects = self.machine.stop(caller, model, now_s, cause)
            case _:
                assert_never(kind)
        try:
            self.apply(effects)
            return await answer
        except asyncio.CancelledError:
            self.apply(self.machine.leave(caller, self.now_s()))
            raise
        finally:
            self._answers.pop(caller, None)

    def _resolve(self, caller: CallerId, answer: Started | Done | Refused) -> None:
        future = self._answers.get(caller)
        if future is None or future.done():
            return
        if isinstance(answer, Refused):
            future.set_exception(Refusal(answer))
        else:
            future.set_result(answer)

    def _log(self, record: Record) -> None:
        event: dict[str, object] = {
            "kind": record.kind,
            "at_s": round(record.at_s + self._epoch_s, 6),
            "model": record.model,
        }
        if record.caller is not None:
            event["request_id"] = self._request_ids.get(record.caller)
        if record.cold is not None:
            event["cold"] = record.cold
        if record.cause is not None:
            event["cause"] = record.cause
        if record.kind is RecordKind.UNLOADED:
            self._touched.discard(record.model)
        self._events.append(event)

    async def _flush_log(self) -> None:
        while True:
            await self._clock.sleep(FLUSH_S * self._clock.scale)
            self._events.flush()
