"""What every part of the LocalAI state machine shares: names, calls, requests, effects."""

from __future__ import annotations

from contracts.world import Residency
from simulator.cluster import Cluster
from simulator.localai_effects import (
    CallerId,
    CallKind,
    Done,
    Effect,
    Record,
    RecordKind,
    Refused,
    Started,
    StopCause,
)
from simulator.localai_state import Call, LocalAiConfig, ModelState

MAX_UNKNOWN_NAMES = 1000
"""States kept for names that are no model; beyond it those without a call are forgotten."""


class LocalAiCore:
    """State and the small steps on it; it decides nothing."""

    def __init__(self, cluster: Cluster[CallerId], config: LocalAiConfig | None = None) -> None:
        self.cluster = cluster
        self.config = config or LocalAiConfig()
        self.model_limit = self.config.model_limit
        self.watchdog_idle_s = self.config.watchdog_idle_s
        self._states: dict[str, ModelState] = {}
        self._calls: dict[CallerId, Call] = {}
        self._program_bytes = 0
        self._leaked: dict[str, int] = {}
        self._effects: list[Effect] = []
        self._active: dict[str, None] = {}

    # Questions

    def is_hot(self, model: str) -> bool:
        """Whether the model can serve now."""
        return model in self.cluster and self.cluster.residency(model) is Residency.HOT

    def is_pinned(self, model: str) -> bool:
        """Whether neither limit nor watchdog may evict it."""
        return model in self._states and self._states[model].pinned

    def listed(self) -> tuple[str, ...]:
        """Models that LocalAI calls loaded, dead ones included, loading ones not."""
        ghosts = [name for name, state in self._states.items() if state.ghost_until_s is not None]
        return (*self.cluster.resident(), *ghosts)

    def is_ghost(self, model: str) -> bool:
        """Whether LocalAI lists the model while its process is dead."""
        return model in self._states and self._states[model].ghost_until_s is not None

    # Requests

    def _serve(self, caller: CallerId, call: Call, now_s: float) -> None:
        """The model is hot: a load is done, a request joins the backend's queue."""
        if call.left:
            del self._calls[caller]
        elif call.kind is CallKind.LOAD:
            self._end(caller, Done(caller=caller))
        else:
            call.queued = True
            self.cluster.arrive(call.model, caller, now_s)

    def _start_ready(self, model: str, now_s: float) -> None:
        for caller in self.cluster.start_ready(model):
            call = self._calls[caller]
            call.queued, call.running = False, True
            self._answer(Started(caller=caller, cold=call.cold))
            self._record(RecordKind.REQUEST_STARTED, model, now_s, caller=caller, cold=call.cold)

    def _end_request(self, caller: CallerId, call: Call, now_s: float) -> None:
        self.cluster.end_request(call.model, caller, now_s)
        self._start_ready(call.model, now_s)

    def _after_request(self, model: str, now_s: float) -> None:
        stop = self._state(model).stop
        if stop is not None and stop.ends_at_s is None and self.cluster.is_idle(model):
            stop.ends_at_s = now_s + self.stop_takes_s(self._state(model))

    def stop_takes_s(self, state: ModelState) -> float:
        """How long a stop of an idle model takes."""
        return self.config.stop_s + state.faults.unload_extra_s

    # Memory

    def _unload(self, model: str, state: ModelState, cause: StopCause, now_s: float) -> None:
        """Take the model off the list, and out of memory unless it is dead already."""
        if state.ghost_until_s is not None:
            state.ghost_until_s = None
            return
        self.cluster.unload(model)
        if state.faults.unload_lies:
            self._leaked[model] = self.cluster.spec(model).footprint_bytes
            self._account_others()
        self._record(RecordKind.UNLOADED, model, now_s, cause=cause)

    # Names, answers, records

    def _state(self, model: str) -> ModelState:
        state = self._states.get(model)
        if state is None:
            self._prune_unknown()
            state = self._states[model] = ModelState()
        return state

    def _prune_unknown(self) -> None:
        if len(self._states) < len(self.cluster) + MAX_UNKNOWN_NAMES:
            return
        for name in tuple(self._states):
            if name not in self.cluster and self._states[name].is_quiet:
                del self._states[name]

    def _account_others(self) -> None:
        self.cluster.set_others_bytes(self._program_bytes + sum(self._leaked.values()))

    def _end(self, caller: CallerId, answer: Done | Refused) -> None:
        if not self._calls.pop(caller).left:
            self._answer(answer)

    def _answer(self, answer: Started | Done | Refused) -> None:
        self._effects.append(answer)

    def _record(
        self,
        kind: RecordKind,
        model: str,
        now_s: float,
        *,
        caller: CallerId | None = None,
        cold: bool | None = None,
        cause: str | None = None,
    ) -> None:
        self._effects.append(
            Record(kind=kind, at_s=now_s, model=model, caller=caller, cold=cold, cause=cause)
        )

    def _flush(self) -> tuple[Effect, ...]:
        effects = tuple(self._effects)
        self._effects.clear()
        return effects
