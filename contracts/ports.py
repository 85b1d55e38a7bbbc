"""The only ways to the outside. Adapters implement them, entry points choose which.

Every port has an in-memory implementation in ``simulator/memory_ports.py``; one contract
suite (``tests/contract``) runs against it and against the real one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from contracts.events import AnyEvent, PriorityClass
from contracts.exchanges import Exchange as Exchange
from contracts.exchanges import StoredAnswer as StoredAnswer
from contracts.forecasts import Forecasts, ModelForecast
from contracts.ids import ModelId, NodeId
from contracts.limits import ClassLimits
from contracts.node_facts import NodeFacts
from contracts.plan import Decision
from contracts.profiles import MeasuredProfile
from contracts.readings import GpuProcess as GpuProcess
from contracts.readings import GpuReading as GpuReading
from contracts.readings import ProbeReading as ProbeReading
from contracts.routing import RoutingTable
from contracts.tenure import Lease as Lease
from contracts.weights import FileWarmth as FileWarmth
from contracts.weights import WeightCache as WeightCache
from contracts.world import GpuYield, Mode, Sla, WorldSnapshot

T = TypeVar("T")
MessageT = TypeVar("MessageT")


class Clock(Protocol):
    """Time and sleep. One scaled clock drives a whole stack (``HEADSTART_TIME_SCALE``)."""

    @property
    def scale(self) -> float:
        """How many of its seconds pass in one real second."""
        ...

    def now_s(self) -> float:
        """Epoch seconds; for records. May step."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never step; for durations."""
        ...

    async def sleep(self, duration_s: float) -> None:
        """Wait for ``duration_s`` of this clock's seconds."""
        ...

    def timeout(self, duration_s: float) -> AbstractAsyncContextManager[object]:
        """A block that raises TimeoutError after ``duration_s`` of this clock's seconds."""
        ...


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """One record of a log with its place there. Ids grow and compare by ``entry_order``."""

    entry_id: str
    value: T


def entry_order(entry_id: str) -> tuple[int, int]:
    """What to compare two entry ids of one log by: "12-3" comes before "12-10"."""
    whole, _, part = entry_id.partition("-")
    return int(whole), int(part or 0)


def entry_lag_s(place: str, end: str) -> float:
    """How much older the entry at ``place`` is than the log's end, by the store's real time.

    >>> entry_lag_s("12000-3", "13500-0")
    1.5
    """
    return max(0, entry_order(end)[0] - entry_order(place)[0]) / 1000.0


class EventLog(Protocol):
    """The append-only log of telemetry: the truth that state is rebuilt from. Bounded."""

    async def append(self, events: tuple[AnyEvent, ...]) -> None:
        """Write a batch. Raises Transient when it was not written."""
        ...

    async def read_after(
        self, entry_id: str, *, count: int, block_s: float = 0.0
    ) -> tuple[Entry[AnyEvent], ...]:
        """Entries after ``entry_id`` ("0": from the beginning, "$": only new ones).

        Unreadable or newer records are skipped and counted (``skipped``). Waits up to
        ``block_s`` real seconds.
        """
        ...

    async def last_id(self) -> str:
        """The id of the newest entry, "0" for an empty log."""
        ...

    @property
    def skipped(self) -> int:
        """Records that could not be read, so far, in this process."""
        ...


class Mailbox(Protocol[MessageT]):
    """A bounded broadcast: each reader sees what is sent while it listens."""

    async def send(self, message: MessageT) -> None:
        """Send to all who listen. Raises Transient when it was not sent."""
        ...

    async def receive(self, after: str, *, block_s: float) -> tuple[str, tuple[MessageT, ...]]:
        """Messages after the given place, and the new place. ``"$"``: from now on.

        Callers pass the returned place back in, so nothing is missed between calls.
        """
        ...


class ForecastStore(Protocol):
    """The newest forecast of each model.

    Writes carry their writer's fencing ``token``: once one was written with a greater one, those
    with a smaller one raise NotLeader and change nothing. None: the writer has no rival.
    """

    async def put(
        self, forecasts: tuple[ModelForecast, ...], *, token: int | None = None
    ) -> None: ...

    async def get_all(self) -> Forecasts: ...

    async def get(self, model: ModelId) -> ModelForecast | None: ...

    async def updates(self, after: str, *, block_s: float) -> tuple[str, tuple[ModelForecast, ...]]:
        """Forecasts put after the given place, and the new place (as ``Mailbox.receive``)."""
        ...

    async def remove(self, models: tuple[ModelId, ...], *, token: int | None = None) -> None:
        """Forget these. With a token also none: from then on smaller ones are refused."""
        ...


class DecisionJournal(Protocol):
    """Decisions, newest last, bounded."""

    async def append(self, decisions: tuple[Decision, ...]) -> None: ...

    async def newest(
        self, *, limit: int, before: str | None = None, subject: str | None = None
    ) -> tuple[Entry[Decision], ...]:
        """Newest first, those before entry ``before`` (None: from the end)."""
        ...

    async def get(self, decision_id: str) -> Decision | None: ...

    async def after(self, entry_id: str, *, block_s: float) -> tuple[Entry[Decision], ...]:
        """Oldest first, those after ``entry_id``; for live feeds."""
        ...


class ControlStore(Protocol):
    """What people set, kept for good: SLA targets, pins and the mode."""

    async def slas(self) -> Mapping[ModelId, Sla]: ...

    async def put_sla(self, sla: Sla) -> None: ...

    async def delete_sla(self, model: ModelId) -> bool:
        """Whether there was one."""
        ...

    async def pins(self) -> frozenset[ModelId]: ...

    async def set_pin(self, model: ModelId, *, pinned: bool) -> None: ...

    async def mode(self) -> Mode | None:
        """None: nobody has set one, the configuration's holds."""
        ...

    async def set_mode(self, mode: Mode) -> None: ...

    async def gpu_yield(self) -> GpuYield | None:
        """What somebody handed the GPU over for; None: nobody did, or took it back."""
        ...

    async def set_gpu_yield(self, wish: GpuYield | None) -> None: ...


class ProfileStore(Protocol):
    """What was measured of models, kept over restarts; of 5,000 models at most."""

    async def put(self, profiles: tuple[MeasuredProfile, ...]) -> None:
        """Store these. Past the bound those measured longest ago go, and are counted."""
        ...

    async def get(self, model: ModelId) -> MeasuredProfile | None: ...

    async def get_all(self) -> Mapping[ModelId, MeasuredProfile]: ...

    async def remove(self, models: tuple[ModelId, ...]) -> None: ...

    @property
    def dropped(self) -> int:
        """Profiles that went for want of room, so far, in this process."""
        ...


class SnapshotStore(Protocol):
    """The newest world and routing table, for those who come later than the messages."""

    async def put_world(self, world: WorldSnapshot) -> None: ...

    async def world(self) -> WorldSnapshot | None: ...

    async def put_routing(self, table: RoutingTable) -> None: ...

    async def routing(self) -> RoutingTable | None: ...

    async def put_baseline(self, name: str, figures: Mapping[str, float]) -> None:
        """Figures of a shadow policy, such as the cold starts LRU would have had."""
        ...

    async def baselines(self) -> Mapping[str, Mapping[str, float]]: ...

    async def put_limits(self, limits: ClassLimits) -> None: ...

    async def limits(self, priority: PriorityClass) -> ClassLimits | None: ...


class LoadLock(Protocol):
    """Which gateway loads a model alone while no controller answers: one at a time."""

    async def take(self, model: ModelId, owner: str, *, hold_s: float) -> bool:
        """Whether ``owner`` holds it now; who holds it already renews it.

        It frees itself ``hold_s`` real seconds after the last take, so that a gateway that
        dies keeps nobody waiting. Raises Transient when that cannot be told.
        """
        ...

    async def release(self, model: ModelId, owner: str) -> None:
        """Give it back; nothing happens where another holds it."""
        ...


def node_lock(node: NodeId) -> ModelId:
    """The name under which ``LoadLock`` holds a whole node: who loads there alone holds both."""
    return ModelId(f"node:{node}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """What a LocalAI instance says of itself. None: it does not tell.

    ``reading``: what it tells of its machine, card by card.
    """

    resident: tuple[ModelId, ...]
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    model_limit: int | None
    reading: ProbeReading | None = None


class ModelServer(Protocol):
    """LocalAI's management API on one node. Times are real; each call has its own limit.

    Raises Transient when it does not answer or cools down, Permanent when it refuses.
    """

    async def models(self) -> tuple[ModelId, ...]:
        """Every model that can be asked for, aliases left out."""
        ...

    async def aliases(self) -> Mapping[str, ModelId]: ...

    async def load(self, model: ModelId) -> None:
        """Returns once the model is resident. Cancelling it kills the load: shield it."""
        ...

    async def unload(self, model: ModelId) -> None:
        """Returns once LocalAI has stopped it; a model that is not loaded is no error.

        Raises Busy when it still serves requests.
        """
        ...

    async def is_busy(self, model: ModelId) -> bool | None:
        """None: it is not loaded."""
        ...

    async def report(self) -> NodeReport: ...

    async def facts(self, *, fresh: bool = False) -> NodeFacts:
        """Version, calls, settings that fight a plan, peers. ``fresh``: it may be another now."""
        ...

    async def started_at_s(self) -> float | None:
        """When its process began, on its own clock; None where it does not tell."""
        ...

    async def warm(self, model: ModelId, *, thorough: bool = False) -> bool:
        """Have a resident model answer the smallest request of its kind; whether there is one.

        ``thorough``: also where that is no small work, such as an image. It goes by a name of
        its own, so that nobody takes it for demand.
        """
        ...

    async def estimate_footprint_bytes(self, model: ModelId) -> int | None:
        """LocalAI's own estimate; None where it has no weights to judge by."""
        ...


class JobQueue(Protocol):
    """Background jobs. Synchronous, since RQ is; async callers run it in a thread."""

    def enqueue(self, queue: str, kind: str, payload: Mapping[str, object], job_id: str) -> bool:
        """Whether it was new: a job id that is known already is not queued again."""
        ...

    def failed(self, queue: str, *, limit: int) -> tuple[Mapping[str, object], ...]:
        """The jobs that have failed for good, the newest first, each as ``status`` tells it."""
        ...

    def retry(self, job_id: str) -> bool:
        """Queue a job that has failed once more; whether it had. A dropped one stays dropped."""
        ...

    def drop(self, job_id: str) -> bool:
        """Take a job that waits out of its queue; whether it did."""
        ...

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Jobs by queue and by state (queued, started, finished, failed, scheduled)."""
        ...

    def status(self, job_id: str) -> Mapping[str, object] | None:
        """State, times, result or error of one job; None: unknown or past its retention."""
        ...


class JobResults(Protocol):
    """Results of background jobs: the first one written for a job is its result for good."""

    async def get(self, job_id: str) -> Mapping[str, object] | None: ...

    async def commit(self, job_id: str, result: Mapping[str, object]) -> bool:
        """Whether this was the first; a later one changes nothing. Raises Transient."""
        ...

    async def cancel(self, job_id: str) -> None:
        """Nobody wants the result any more: a run is to be broken off. Raises Transient."""
        ...

    async def is_cancelled(self, job_id: str) -> bool: ...


class InferenceGateway(Protocol):
    """The gateway, as a background job calls it.

    Cancelling a call closes its connection, so that the work behind it ends.
    """

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> StoredAnswer:
        """The answer of a request that was served.

        Raises Transient when it was refused for now, Permanent when for good.
        """
        ...

    async def exchange(self, path: str, body: bytes, headers: Mapping[str, str]) -> Exchange:
        """The answer, whatever it is. Raises Transient only when there was none."""
        ...


class Notifier(Protocol):
    """Tells somebody's server that something is over."""

    async def notify(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Returns once it was taken. Raises Transient when not, Invalid for a URL that none may be.

        Permanent: it was refused for good.
        """
        ...


class Trimmable(Protocol):
    """A log that retention may shorten further than its own bound does."""

    async def trim(self, *, max_age_s: float, max_entries: int) -> int:
        """Remove what is older (by the store's own, real time) or too much; how many went."""
        ...


class Probe(Protocol):
    """Reads the host. Never raises: what cannot be read is None."""

    def read(self, now_s: float) -> ProbeReading: ...
