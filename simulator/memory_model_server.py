# ruff: noqa: D102 - the port says what each method does
"""An in-memory LocalAI, as seen through the ``ModelServer`` port."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from contracts.errors import Busy, HeadstartError, Permanent, Transient
from contracts.ids import ModelId
from contracts.node_facts import NodeFacts
from contracts.ports import Clock, NodeReport
from simulator.memory_streams import Faulty

_FIRST_COOLDOWN_S = 10.0
_MAX_COOLDOWN_S = 300.0


@dataclass(frozen=True, slots=True)
class ServerCall:
    """One line of the server's log: what happened to which model, and when."""

    at_s: float
    what: str
    model: ModelId


class MemoryModelServer(Faulty):
    """``ModelServer`` with scripted load times and failures.

    It behaves as LocalAI does where a controller can tell: one load for all who ask for a
    model, a caller that leaves kills the load, a failed load cools down (10 s, doubling), an
    unknown name is refused, a busy model is not stopped, a dead process stays listed.

    Parameters
    ----------
    clock : Clock
        Loads and cool-downs pass on it.
    load_s : mapping
        Every model there is, and how long it loads.
    footprint_bytes : mapping
        Memory of each while resident; a model that is left out takes none that it tells of.
    """

    def __init__(
        self,
        clock: Clock,
        load_s: Mapping[ModelId, float],
        *,
        footprint_bytes: Mapping[ModelId, int] | None = None,
        aliases: Mapping[str, ModelId] | None = None,
        memory_total_bytes: int | None = None,
        model_limit: int | None = None,
        unload_s: float = 0.0,
    ) -> None:
        self.load_s = dict(load_s)
        self.footprint_bytes = dict(footprint_bytes or {})
        self.memory_total_bytes = memory_total_bytes
        self.model_limit = model_limit
        self.unload_s = unload_s
        self.busy: set[ModelId] = set()
        self.resident: set[ModelId] = set()
        self.dead: set[ModelId] = set()
        self.calls: list[ServerCall] = []
        self.warmed: list[ModelId] = []
        self.warm_s = 0.0
        self.not_to_warm: set[ModelId] = set()
        self.node_facts = NodeFacts()
        self.began_at_s: float | None = clock.now_s()
        self.peak_bytes = 0
        self._clock = clock
        self._aliases = dict(aliases or {})
        self._loads: dict[ModelId, asyncio.Future[None]] = {}
        self._failures: dict[ModelId, list[HeadstartError]] = {}
        self._failed_times: dict[ModelId, int] = {}
        self._cooldown_until_s: dict[ModelId, float] = {}

    def fail_loads(self, model: ModelId, *errors: HeadstartError) -> None:
        """The next loads of ``model`` end with these errors, one each, after its load time."""
        self._failures.setdefault(model, []).extend(errors)

    def kill_process(self, model: ModelId) -> None:
        """Its process dies: still listed and "loaded", but nothing answers (a ghost)."""
        self.dead.add(model)

    def restart(self) -> None:
        """It begins anew: nothing is resident, nothing cools down."""
        self.resident.clear()
        self.dead.clear()
        self.busy.clear()
        self._cooldown_until_s.clear()
        self._failed_times.clear()
        self.began_at_s = self._clock.now_s()

    def evict(self, model: ModelId) -> None:
        """LocalAI unloads it by itself."""
        self.resident.discard(model)
        self._note("evicted", model)

    @property
    def used_bytes(self) -> int:
        """Memory of all that is resident or loading."""
        return sum(
            self.footprint_bytes.get(model, 0)
            for model in self.resident | self._loads.keys()
            if model not in self.dead
        )

    async def models(self) -> tuple[ModelId, ...]:
        self._check()
        return tuple(sorted(self.load_s))

    async def aliases(self) -> Mapping[str, ModelId]:
        self._check()
        return dict(self._aliases)

    async def load(self, model: ModelId) -> None:
        """Load and wait; joins a load that runs. Cancelling any caller ends it for all."""
        self._check()
        if model in self.resident:
            return
        if model not in self.load_s:
            raise Permanent(f"failed to load model: {model} is unknown")
        self._refuse_while_cooling(model)
        if (running := self._loads.get(model)) is not None:
            await self._join(model, running)
            return
        await self._run_load(model)

    async def unload(self, model: ModelId) -> None:
        self._check()
        if model in self.busy and model not in self.dead:
            raise Busy(f"model is still busy: {model}")
        if model not in self.resident:
            return
        if self.unload_s > 0.0:
            await self._clock.sleep(self.unload_s)
        self.resident.discard(model)
        self.dead.discard(model)
        self.busy.discard(model)
        self._note("unloaded", model)

    async def is_busy(self, model: ModelId) -> bool | None:
        self._check()
        if model not in self.resident or model in self.dead:
            # LocalAI's monitor calls a dead process not loaded, although its list has it.
            return None
        return model in self.busy

    async def report(self) -> NodeReport:
        self._check()
        return NodeReport(
            resident=tuple(sorted(self.resident)),
            memory_total_bytes=self.memory_total_bytes,
            memory_used_bytes=None if self.memory_total_bytes is None else self.used_bytes,
            model_limit=self.model_limit,
        )

    async def facts(self, *, fresh: bool = False) -> NodeFacts:  # noqa: ARG002 - the port's
        self._check()
        return self.node_facts

    async def started_at_s(self) -> float | None:
        self._check()
        return self.began_at_s

    async def warm(self, model: ModelId, *, thorough: bool = False) -> bool:
        self._check()
        if model in self.not_to_warm and not thorough:
            return False
        await self.load(model)
        await self._clock.sleep(self.warm_s)
        self.warmed.append(model)
        return True

    async def estimate_footprint_bytes(self, model: ModelId) -> int | None:
        self._check()
        return self.footprint_bytes.get(model)

    async def _run_load(self, model: ModelId) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loads[model] = ended
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        self._note("load_started", model)
        failures = self._failures.get(model, [])
        try:
            await self._until(ended, self.load_s[model])
            self._check()
            if failures:
                raise failures.pop(0)
        except (HeadstartError, asyncio.CancelledError) as fault:
            self._end_failed_load(model, fault)
            raise
        finally:
            del self._loads[model]
        self._failed_times.pop(model, None)
        self.resident.add(model)
        self._note("loaded", model)
        if not ended.done():
            ended.set_result(None)

    async def _until(self, killed: asyncio.Future[None], load_s: float) -> None:
        """Wait for the load time, or for another caller of the same load to kill it."""
        sleeping = asyncio.ensure_future(self._clock.sleep(load_s))
        try:
            await asyncio.wait({sleeping, killed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
        if killed.done():
            killed.result()

    async def _join(self, model: ModelId, running: asyncio.Future[None]) -> None:
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            if not running.done():
                running.set_exception(Transient(f"the load of {model} was cancelled"))
            raise

    def _end_failed_load(self, model: ModelId, fault: BaseException) -> None:
        times = self._failed_times.get(model, 0)
        cooldown_s = min(_FIRST_COOLDOWN_S * 2**times, _MAX_COOLDOWN_S)
        self._failed_times[model] = times + 1
        self._cooldown_until_s[model] = self._clock.monotonic_s() + cooldown_s
        self._note("load_failed", model)
        ended = self._loads[model]
        if not ended.done():
            ended.set_exception(
                fault
                if isinstance(fault, HeadstartError)
                else Transient(f"the load of {model} was cancelled")
            )
        ended.exception()  # seen, even where nobody else waits for this load

    def _refuse_while_cooling(self, model: ModelId) -> None:
        rest_s = self._cooldown_until_s.get(model, 0.0) - self._clock.monotonic_s()
        if rest_s > 0.0:
            raise Transient(f"model {model} cools down", retry_after_s=rest_s)

    def _note(self, what: str, model: ModelId) -> None:
        self.calls.append(ServerCall(self._clock.now_s(), what, model))
