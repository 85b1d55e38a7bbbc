"""Tasks that keep the board current: one per source, each patient when the store is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from api.control.board import Board
from api.control.live import LiveView
from api.control.ports import ControlPorts
from contracts.errors import HeadstartError
from contracts.events import RequestReceived
from contracts.ports import Clock
from contracts.seen_events import SeenEvents

_log = structlog.get_logger(__name__)

POLL_S = 1.0
"""Real seconds between two looks at the world: what an eye can follow."""
JOBS_S = 2.0
RETRY_S = 1.0
BLOCK_S = 1.0
CALL_LIMIT_S = 5.0
"""Real seconds that one call to the store may take."""
RESYNC_S = 60.0
_EVENT_BATCH = 1000


class Followers:
    """Runs all tasks from ``start`` to ``stop``.

    Attributes
    ----------
    faults : dict
        What is wrong with a source now, by its name; empty while all is well.
    """

    def __init__(self, ports: ControlPorts, board: Board, live: LiveView, clock: Clock) -> None:
        self._ports = ports
        self._board = board
        self._live = live
        self._clock = clock
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self.faults: dict[str, str] = {}
        self._event_place = "0"
        self._has_caught_up = False
        self._decision_place: str | None = None
        self._forecast_place: str | None = None
        self._seen = SeenEvents()
        self._resync_at_s = 0.0

    def start(self) -> None:
        """Begin to follow."""
        self._board.kpis.counters.start_at(self._clock.now_s())
        steps: dict[str, Callable[[], Awaitable[None]]] = {
            "world": self._poll_world,
            "events": self._follow_events,
            "decisions": self._follow_decisions,
            "forecasts": self._follow_forecasts,
        }
        if self._ports.jobs is not None:
            steps["jobs"] = self._poll_jobs
        self._tasks = tuple(
            asyncio.create_task(self._forever(name, step), name=f"control-{name}")
            for name, step in steps.items()
        )

    async def stop(self) -> None:
        """End all tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _forever(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                async with self._clock.timeout((CALL_LIMIT_S + BLOCK_S) * self._clock.scale):
                    await step()
                self._went_well(name)
            except (HeadstartError, TimeoutError) as error:
                if self._went_wrong(name, str(error) or "no answer in time"):
                    _log.warning("control.source_away", source=name, error=self.faults[name])
                await self._pause(RETRY_S)
            except Exception as error:  # noqa: BLE001 - logged, told by readyz, and tried again
                # A bug of ours: the others go on, and /readyz says that this one does not.
                if self._went_wrong(name, f"internal error: {type(error).__name__}"):
                    _log.exception("control.source_broken", source=name)
                await self._pause(RETRY_S)

    def _went_well(self, name: str) -> None:
        if self.faults.pop(name, None) is not None:
            _log.info("control.source_back", source=name)

    def _went_wrong(self, name: str, detail: str) -> bool:
        """Whether the fault is new, so that it is logged once."""
        is_new = name not in self.faults
        self.faults[name] = detail
        if name == "world":
            self._board.store_fault = detail
            self._live.tell_fault()
        return is_new

    async def _poll_world(self) -> None:
        await self.read_world()
        if self._has_caught_up and self._board.world is not None:
            self._board.kpis.saw(self._board.world, self._clock.now_s())
        self._live.refresh()
        await self._pause(POLL_S)

    async def _poll_jobs(self) -> None:
        """What waits in the job queue and who serves it: a thread asks, the port is synchronous."""
        jobs, workers = self._ports.jobs, self._ports.workers
        assert jobs is not None
        self._board.jobs = await asyncio.to_thread(jobs.counts)
        if workers is not None:
            queues = tuple(self._board.jobs)
            found = await asyncio.to_thread(lambda: {queue: workers(queue) for queue in queues})
            self._board.workers = found
        await self._pause(JOBS_S)

    async def read_world(self) -> None:
        """One look at all that is polled."""
        board, snapshots, settings = self._board, self._ports.snapshots, self._ports.settings
        world = await snapshots.world()
        board.routing = await snapshots.routing()
        board.baselines = await snapshots.baselines()
        board.slas = await settings.slas()
        board.mode_wanted = await settings.mode()
        board.log_end = await self._ports.events.last_id()
        if self._ports.scaling is not None:
            board.scalings = await self._ports.scaling.scalings()
        if self._ports.predictors is not None:
            board.predictors = await self._ports.predictors.all()
        # A store that lost its data does not make us forget what we know.
        board.world = world or board.world
        board.store_fault = None

    async def _follow_events(self) -> None:
        entries = await self._ports.events.read_after(
            self._event_place, count=_EVENT_BATCH, block_s=BLOCK_S
        )
        for event in self._seen.fresh(entry.value for entry in entries):
            self._board.history.counting_since(event.at_s)
            self._board.tally.observe(event)
            self._board.kpis.observe(event)
            if isinstance(event, RequestReceived) and event.model is not None:
                self._board.history.arrived(event.model, event.at_s)
            if (made_up := self._board.invented.observe(event)) is not None:
                self._board.drop(made_up)
        if entries:
            self._event_place = self._board.log_place = entries[-1].entry_id
        # What the world shows of residency is of now: it must not come before older events.
        self._has_caught_up = len(entries) < _EVENT_BATCH
        # A long log is caught up with in slices, so that callers are answered meanwhile.
        await self._clock.sleep(0.0)

    async def _follow_decisions(self) -> None:
        journal = self._ports.decisions
        if self._decision_place is None:
            newest = await journal.newest(limit=1)
            self._decision_place = newest[0].entry_id if newest else "0"
        entries = await journal.after(self._decision_place, block_s=BLOCK_S)
        for entry in entries:
            self._board.count_decision(entry.value)
        self._live.decided(entries)
        if entries:
            self._decision_place = entries[-1].entry_id

    async def _follow_forecasts(self) -> None:
        store, board = self._ports.forecasts, self._board
        now_s = self._clock.monotonic_s()
        if self._forecast_place is None or now_s >= self._resync_at_s:
            # The place is taken first, so that nothing falls between it and the whole.
            place, _ = await store.updates(self._forecast_place or "$", block_s=0.0)
            forecasts = await store.get_all()
            board.replace_forecasts(forecasts)
            self._live.forecasts_changed(forecasts)
            self._forecast_place = place
            self._resync_at_s = now_s + RESYNC_S * self._clock.scale
        self._forecast_place, changed = await store.updates(self._forecast_place, block_s=BLOCK_S)
        board.take_forecasts(changed)
        self._live.forecasts_changed(one.model for one in changed)

    async def _pause(self, real_s: float) -> None:
        await self._clock.sleep(real_s * self._clock.scale)
