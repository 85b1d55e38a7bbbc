"""How LocalAI loads: room under its limit, process start, weights, failure and cool-down."""

from __future__ import annotations

import math

from simulator.localai_core import LocalAiCore
from simulator.localai_effects import (
    CallerId,
    RecordKind,
    RefusalKind,
    Refused,
    StopCause,
)
from simulator.localai_state import Load, ModelState, Phase, cooldown_s


class LocalAiLoads(LocalAiCore):
    """The steps of one load. Each ends with the time of the next in ``Load.wake_s``."""

    def _make_room(self, model: str, state: ModelState, now_s: float) -> None:
        load = state.load
        assert load is not None
        evicted, busy = self._enforce_limit(model, now_s)
        load.attempts += 1
        if busy and load.attempts < self.config.eviction_retries:
            load.wake_s = now_s + self.config.eviction_retry_s
        else:
            self._begin_load(model, state, now_s, delay_s=evicted * self.config.stop_s)

    def _enforce_limit(self, model: str, now_s: float) -> tuple[int, bool]:
        """Evict down to the limit; how many went, and whether busy ones are in the way."""
        if self.model_limit is None:
            return 0, False
        listed = self.listed()
        loading = sum(1 for name in self.cluster.loading() if name != model)
        excess = len(listed) + loading + 1 - self.model_limit
        evicted = 0
        busy = False
        for victim in sorted(listed, key=lambda name: self.cluster.last_used_s(name) or 0.0):
            state = self._state(victim)
            if evicted >= excess:
                return evicted, False
            if state.pinned:
                continue
            if state.stop is not None or not (
                self.is_ghost(victim) or self.cluster.is_idle(victim)
            ):
                busy = True
                continue
            self._unload(victim, state, StopCause.LIMIT, now_s)
            evicted += 1
        return evicted, busy and evicted < excess

    def _begin_load(
        self, model: str, state: ModelState, now_s: float, *, delay_s: float = 0.0
    ) -> None:
        load = state.load
        assert load is not None
        load.phase = Phase.STARTING
        load.wake_s = now_s + delay_s + self.config.start_s
        self._record(RecordKind.LOAD_STARTED, model, now_s, caller=load.leader)
        if model not in self.cluster:
            load.error = self.config.unknown_error.format(model=model)
        elif self.cluster.fits(model):
            self.cluster.begin_load(model)
            load.holds_memory = True
        else:
            load.error = self.config.memory_error

    def _begin_weights(self, model: str, state: ModelState, now_s: float) -> None:
        load = state.load
        assert load is not None
        load.phase = Phase.WEIGHTS
        if self._calls[load.leader].left:
            self._fail_load(model, state, now_s, "context canceled", cancelled=True)
        elif load.error is not None:
            self._fail_load(model, state, now_s, load.error)
        else:
            faults = state.faults
            takes_s = self.cluster.spec(model).load_s * faults.load_factor + faults.load_extra_s
            load.wake_s = math.inf if faults.load_hangs else now_s + takes_s

    def _end_weights(self, model: str, state: ModelState, now_s: float) -> None:
        if state.faults.load_failures:
            state.faults = state.faults.one_failure_less()
            self._fail_load(model, state, now_s, state.faults.load_error)
            return
        load = state.load
        assert load is not None
        state.load = None
        state.failures, state.cooldown_until_s, state.healthy_at_s = 0, 0.0, now_s
        self.cluster.end_load(model, now_s)
        self._record(RecordKind.LOAD_ENDED, model, now_s, caller=load.leader)
        for caller in (load.leader, *load.followers):
            self._serve(caller, self._calls[caller], now_s)
        self._start_ready(model, now_s)

    def _fail_load(
        self, model: str, state: ModelState, now_s: float, error: str, *, cancelled: bool = False
    ) -> None:
        load = state.load
        assert load is not None
        if load.holds_memory:
            self.cluster.abort_load(model)
        state.failures += 1
        state.cooldown_until_s = now_s + cooldown_s(state.failures)
        kind = RecordKind.LOAD_CANCELLED if cancelled else RecordKind.LOAD_FAILED
        self._record(kind, model, now_s, caller=load.leader, cause=error)
        refused = Refused(caller=load.leader, kind=RefusalKind.LOAD_FAILED, message=error)
        self._end(load.leader, refused)
        state.load = None
        while load.followers and state.load is None:
            # Those who wait are no new callers: they try again in spite of the cool-down.
            leader = load.followers.popleft()
            if self._calls[leader].left and self.config.start_s == 0:
                del self._calls[leader]  # would start a process and give up at once
            else:
                state.load = Load(leader=leader, followers=load.followers)
                self._begin_load(model, state, now_s)

    def _leads_weights(self, state: ModelState, caller: CallerId) -> bool:
        load = state.load
        return load is not None and load.leader == caller and load.phase is Phase.WEIGHTS
