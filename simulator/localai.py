"""LocalAI's own rules on top of a node's accounts, as a pure state machine.

Calls come in (``infer``, ``load``, ``monitor``, ``stop``, ``leave``, ``finish``), effects come
out: answers to callers and records for a log. Whoever drives it calls ``advance`` at
``next_wake_s``. What it copies from LocalAI v4.9:

- one load for all who wait for a model. The caller that began it leads it: its leaving ends
  the load, which then counts as failed, and the next who waits begins it anew, even one that
  has left meanwhile;
- 10, 20, 40 … 300 s of cool-down after failed loads;
- a limit on loaded models: the least recently used idle one goes, busy ones are waited for;
- a stop waits for a busy model and holds up all new calls of that model meanwhile;
- a dead backend stays listed until its health is looked at again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from simulator.localai_effects import (
    CallerId,
    CallKind,
    Done,
    Effect,
    RecordKind,
    RefusalKind,
    Refused,
    StopCause,
)
from simulator.localai_loads import LocalAiLoads
from simulator.localai_state import (
    Call,
    Load,
    ModelFaults,
    ModelState,
    Phase,
    Stop,
)


class LocalAi(LocalAiLoads):
    """One LocalAI instance. Caller numbers are the driver's, unique while a call runs."""

    # Calls

    def infer(self, caller: CallerId, model: str, now_s: float) -> tuple[Effect, ...]:
        """A request; ``Started`` once it holds a slot, then ``finish`` or ``leave`` ends it."""
        return self._call(caller, CallKind.INFER, model, now_s)

    def load(self, caller: CallerId, model: str, now_s: float) -> tuple[Effect, ...]:
        """``Done`` once the model is hot."""
        return self._call(caller, CallKind.LOAD, model, now_s)

    def monitor(self, caller: CallerId, model: str, now_s: float) -> tuple[Effect, ...]:
        """``Done`` with whether the model is busy; waits behind a stop as all calls do."""
        return self._call(caller, CallKind.MONITOR, model, now_s)

    def stop(
        self,
        caller: CallerId,
        model: str,
        now_s: float,
        cause: StopCause = StopCause.SHUTDOWN,
    ) -> tuple[Effect, ...]:
        """``Done`` once the model is unloaded; it goes on when its caller leaves."""
        return self._call(caller, CallKind.STOP, model, now_s, cause)

    def finish(self, caller: CallerId, now_s: float) -> tuple[Effect, ...]:
        """A started request has its answer."""
        self._run_due(now_s)
        call = self._calls.pop(caller)
        self._end_request(caller, call, now_s)
        self._record(RecordKind.REQUEST_ENDED, call.model, now_s, caller=caller)
        self._after_request(call.model, now_s)
        self._run_due(now_s)
        return self._flush()

    def leave(self, caller: CallerId, now_s: float) -> tuple[Effect, ...]:
        """A caller went away before its answer was complete."""
        self._run_due(now_s)
        call = self._calls.get(caller)
        if call is None or call.left:
            return self._flush()
        call.left = True
        self._record(RecordKind.CALLER_LEFT, call.model, now_s, caller=caller)
        state = self._state(call.model)
        if call.running:
            del self._calls[caller]
            self._end_request(caller, call, now_s)
            self._after_request(call.model, now_s)
        elif call.queued:
            del self._calls[caller]
            self.cluster.withdraw(call.model, caller)
            self._after_request(call.model, now_s)
        elif self._leads_weights(state, caller):
            self._fail_load(call.model, state, now_s, "context canceled", cancelled=True)
            self._pump(call.model, state, now_s)
        self._run_due(now_s)
        return self._flush()

    def crash(self, model: str, now_s: float) -> tuple[Effect, ...]:
        """The model's process dies. LocalAI goes on listing it; its memory is free."""
        self._run_due(now_s)
        state = self._state(model)
        if self.is_hot(model):
            for caller in self.cluster.kill(model):
                del self._calls[caller]
                self._answer(Refused(caller=caller, kind=RefusalKind.BROKEN))
            self._record(RecordKind.UNLOADED, model, now_s, cause=StopCause.CRASH)
            state.ghost_until_s = state.healthy_at_s + self.config.health_cache_s
            if state.stop is not None and state.stop.ends_at_s is None:
                state.stop.ends_at_s = now_s
        elif state.load is not None and state.load.phase is not Phase.ROOM:
            self._fail_load(model, state, now_s, "error reading from server: EOF")
            self._pump(model, state, now_s)
        self._run_due(now_s)
        return self._flush()

    def restart(self, now_s: float) -> tuple[Effect, ...]:
        """The server ends and begins anew: its callers get nothing, and it remembers nothing."""
        self._run_due(now_s)
        for caller, call in self._calls.items():
            if not call.left:
                self._answer(Refused(caller=caller, kind=RefusalKind.BROKEN))
        self._calls.clear()
        for model in self.cluster.resident():
            self.cluster.kill(model)
            self._record(RecordKind.UNLOADED, model, now_s, cause=StopCause.RESTART)
        for model in self.cluster.loading():
            self.cluster.abort_load(model)
            self._record(RecordKind.LOAD_CANCELLED, model, now_s, cause=StopCause.RESTART)
        self._states = {
            name: ModelState(pinned=state.pinned, faults=state.faults)
            for name, state in self._states.items()
        }
        self._active.clear()
        self.clear_leaks()
        return self._flush()

    def advance(self, now_s: float) -> tuple[Effect, ...]:
        """Everything that is due by ``now_s`` happens."""
        self._run_due(now_s)
        return self._flush()

    def resume(self, now_s: float) -> tuple[Effect, ...]:
        """What hung goes on where nothing makes it hang any more."""
        for model in self._active:
            state = self._states[model]
            load, stop, faults = state.load, state.stop, state.faults
            if load is not None and load.wake_s == math.inf and not faults.load_hangs:
                load.wake_s = now_s + self.cluster.spec(model).load_s
            if stop is not None and stop.ends_at_s == math.inf and not faults.unload_hangs:
                is_idle = self.cluster.is_idle(model)
                stop.ends_at_s = now_s + self.stop_takes_s(state) if is_idle else None
        self._run_due(now_s)
        return self._flush()

    # Settings and faults

    def set_pinned(self, model: str, *, pinned: bool) -> None:
        """A pinned model is never evicted by the limit or the watchdog."""
        self._state(model).pinned = pinned

    def set_faults(self, model: str, faults: ModelFaults) -> None:
        """What goes wrong with this model from here on."""
        self._state(model).faults = faults

    def faults(self, model: str) -> ModelFaults:
        """What goes wrong with this model."""
        return self._state(model).faults

    def cool_down(self, model: str, duration_s: float, now_s: float) -> None:
        """As if a load of it had failed just now."""
        state = self._state(model)
        state.failures += 1
        state.cooldown_until_s = now_s + duration_s

    def set_program_bytes(self, program_bytes: int) -> None:
        """Another program holds this much memory."""
        self._program_bytes = program_bytes
        self._account_others()

    def clear_leaks(self) -> None:
        """Memory that stopped models kept is free again."""
        self._leaked.clear()
        self._account_others()

    def forget(self, model: str) -> None:
        """A model's configuration is gone, and with it what was known of its loads."""
        self._states.pop(model, None)

    # Questions

    def cooldown_left_s(self, model: str, now_s: float) -> float:
        """Seconds until a load of the model is tried again; 0 when at once."""
        state = self._states.get(model)
        return 0.0 if state is None else max(0.0, state.cooldown_until_s - now_s)

    def next_wake_s(self) -> float | None:
        """When ``advance`` has something to do; None: not before another call."""
        wake_s = min((due for _, due in self._dues()), default=math.inf)
        return None if wake_s == math.inf else wake_s

    # Entering

    def _call(
        self,
        caller: CallerId,
        kind: CallKind,
        model: str,
        now_s: float,
        cause: StopCause = StopCause.SHUTDOWN,
    ) -> tuple[Effect, ...]:
        self._run_due(now_s)
        cold = not self.is_hot(model)
        self._calls[caller] = Call(kind=kind, model=model, cold=cold, cause=cause)
        state = self._state(model)
        if kind is CallKind.INFER:
            self._record(RecordKind.REQUEST_RECEIVED, model, now_s, caller=caller, cold=cold)
        elif kind is CallKind.STOP:
            state.stop_deadlines_s[caller] = now_s + self.config.stop_wait_s
        state.gate.append(caller)
        self._active[model] = None
        self._pump(model, state, now_s)
        self._run_due(now_s)
        if state.is_quiet:
            self._active.pop(model, None)
        return self._flush()

    def _pump(self, model: str, state: ModelState, now_s: float) -> None:
        """Let calls pass in their order until a stop has to wait."""
        while state.gate and state.stop is None:
            caller = state.gate[0]
            if self._calls[caller].kind is CallKind.STOP:
                if state.load is not None and state.load.phase is not Phase.ROOM:
                    return
                state.gate.popleft()
                self._begin_stop(caller, model, state, now_s)
            else:
                state.gate.popleft()
                self._enter(caller, self._calls[caller], state, now_s)

    def _enter(self, caller: CallerId, call: Call, state: ModelState, now_s: float) -> None:
        model = call.model
        if state.ghost_until_s is not None and now_s >= state.ghost_until_s:
            state.ghost_until_s = None
        if call.kind is CallKind.MONITOR:
            self._look(caller, model, state)
        elif state.ghost_until_s is not None:
            # LocalAI believes its list: a load "is done", a request finds nobody.
            ghost = Refused(caller=caller, kind=RefusalKind.DEAD)
            self._end(caller, Done(caller=caller) if call.kind is CallKind.LOAD else ghost)
        elif self.is_hot(model):
            if now_s - state.healthy_at_s >= self.config.health_cache_s:
                state.healthy_at_s = now_s
            self._serve(caller, call, now_s)
            self._start_ready(model, now_s)
        elif state.cooldown_until_s > now_s:
            left_s = state.cooldown_until_s - now_s
            refused = Refused(caller=caller, kind=RefusalKind.COOLDOWN, retry_after_s=left_s)
            self._end(caller, refused)
        elif state.load is not None:
            state.load.followers.append(caller)
        else:
            state.load = Load(leader=caller, wake_s=now_s)

    def _look(self, caller: CallerId, model: str, state: ModelState) -> None:
        if state.ghost_until_s is not None:
            self._end(caller, Refused(caller=caller, kind=RefusalKind.DEAD))
        elif self.is_hot(model):
            self._end(caller, Done(caller=caller, busy=not self.cluster.is_idle(model)))
        else:
            self._end(caller, Refused(caller=caller, kind=RefusalKind.NOT_LOADED))

    # Stops

    def _begin_stop(self, caller: CallerId, model: str, state: ModelState, now_s: float) -> None:
        deadline_s = state.stop_deadlines_s.pop(caller)
        if state.ghost_until_s is not None:
            self._unload(model, state, self._calls[caller].cause, now_s)
            self._end(caller, Done(caller=caller))
        elif not self.is_hot(model):
            self._end(caller, Refused(caller=caller, kind=RefusalKind.NOT_LOADED))
        else:
            state.stop = Stop(caller=caller, deadline_s=deadline_s)
            if state.faults.unload_hangs:
                state.stop.ends_at_s = math.inf
            elif self.cluster.is_idle(model):
                state.stop.ends_at_s = now_s + self.stop_takes_s(state)

    def _run_stop(self, model: str, state: ModelState, now_s: float) -> None:
        stop = state.stop
        assert stop is not None
        if stop.ends_at_s is not None and stop.ends_at_s <= now_s:
            state.stop = None
            self._unload(model, state, self._calls[stop.caller].cause, now_s)
            self._end(stop.caller, Done(caller=stop.caller))
        elif stop.ends_at_s is None and stop.deadline_s <= now_s:
            state.stop = None
            self._end(stop.caller, Refused(caller=stop.caller, kind=RefusalKind.BUSY))

    # Time

    def _dues(self) -> Iterator[tuple[str, float]]:
        for model in self._active:
            state = self._states[model]
            if state.load is not None:
                yield model, state.load.wake_s
            if state.stop is not None:
                ends_at_s = state.stop.ends_at_s
                yield model, state.stop.deadline_s if ends_at_s is None else ends_at_s
            for deadline_s in state.stop_deadlines_s.values():
                yield model, deadline_s
        if self.watchdog_idle_s is not None:
            for model in self.listed():
                if self._watchdog_may_stop(model):
                    yield model, self._idle_until_s(model, self.watchdog_idle_s)

    def _run_due(self, now_s: float) -> None:
        """Take every step that is due, the earliest first; steps may make others due."""
        while True:
            due = min(self._dues(), key=lambda item: item[1], default=None)
            if due is None or due[1] > now_s:
                return
            # At its own time, so that a late driver does not stretch loads.
            self._run_model(*due)
            if self._state(due[0]).is_quiet:
                self._active.pop(due[0], None)

    def _run_model(self, model: str, now_s: float) -> None:
        state = self._state(model)
        load = state.load
        if load is not None and load.wake_s <= now_s:
            step = {
                Phase.ROOM: self._make_room,
                Phase.STARTING: self._begin_weights,
                Phase.WEIGHTS: self._end_weights,
            }[load.phase]
            step(model, state, now_s)
        if state.stop is not None:
            self._run_stop(model, state, now_s)
        for caller, deadline_s in tuple(state.stop_deadlines_s.items()):
            if deadline_s <= now_s:
                del state.stop_deadlines_s[caller]
                state.gate.remove(caller)
                self._end(caller, Refused(caller=caller, kind=RefusalKind.STOP_TIMEOUT))
        self._pump(model, state, now_s)
        idle_s = self.watchdog_idle_s
        if idle_s is None or not self._watchdog_may_stop(model):
            return
        if self._idle_until_s(model, idle_s) <= now_s:
            self._unload(model, state, StopCause.IDLE, now_s)

    def _watchdog_may_stop(self, model: str) -> bool:
        state = self._state(model)
        if state.pinned or state.stop is not None:
            return False
        return state.ghost_until_s is not None or (
            self.is_hot(model) and self.cluster.is_idle(model)
        )

    def _idle_until_s(self, model: str, idle_s: float) -> float:
        last_used_s = self.cluster.last_used_s(model) or 0.0
        return last_used_s + idle_s + self.config.watchdog_interval_s
